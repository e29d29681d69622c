//! A byte-level BPE vocabulary made by a rule, of any size: text in any language becomes ids and comes back.

use llmrt_gguf::{Array, Metadata, Value};
use llmrt_tokenizer::{TokenKind, char_of_byte};

/// Names of the tokens that steer, which come last: start of text, end of text, end of a turn.
const CONTROL: [&str; 3] = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"];

/// Letters that are frequent in English come first, so that they get longer tokens.
const FREQUENT: &[u8] = b" etaoinshrdlcumwfgypbvk";

/// Writes a vocabulary of `n_vocab` tokens for this pre-tokenizer, and returns their number.
pub fn write(m: &mut Metadata, n_vocab: u64, pre: &str) -> u64 {
    let (tokens, merges) = tokens((n_vocab as usize).saturating_sub(CONTROL.len()));
    let mut kinds = vec![TokenKind::Normal as i32; tokens.len()];
    kinds.extend(CONTROL.map(|_| TokenKind::Control as i32));
    let [bos, eos, eot] = [0, 1, 2].map(|i| (tokens.len() + i) as u32);
    let tokens: Vec<String> = tokens.into_iter().chain(CONTROL.map(String::from)).collect();
    let n = tokens.len() as u64;

    m.set("tokenizer.ggml.model", "gpt2");
    m.set("tokenizer.ggml.pre", pre);
    m.set("tokenizer.ggml.tokens", tokens);
    m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    m.set("tokenizer.ggml.merges", merges);
    m.set("tokenizer.ggml.bos_token_id", bos);
    m.set("tokenizer.ggml.eos_token_id", eos);
    m.set("tokenizer.ggml.eot_token_id", eot);
    m.set("tokenizer.ggml.add_bos_token", Value::Bool(pre != "qwen2"));
    n
}

/// `n` tokens and the merges that make them: the 256 bytes, then each token in turn with each byte after it, which
/// gives all texts of two bytes, then those of three as far as there is room.
fn tokens(n: usize) -> (Vec<String>, Vec<String>) {
    let rest = (0..=255).filter(|byte| !FREQUENT.contains(byte));
    let bytes: Vec<u8> = FREQUENT.iter().copied().chain(rest).collect();
    let mut tokens: Vec<String> = bytes.iter().map(|&byte| char_of_byte(byte).to_string()).collect();
    let mut merges = Vec::new();
    for i in 256..n {
        let (left, right) = (&tokens[(i - 256) / 256], &tokens[i % 256]);
        merges.push(format!("{left} {right}"));
        tokens.push(format!("{left}{right}"));
    }
    (tokens, merges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_tokenizer::{EncodeOptions, Tokenizer};
    use std::collections::HashSet;

    #[test]
    fn text_becomes_ids_and_comes_back() {
        for (n_vocab, pre) in [(151_936, "qwen2"), (32_000, "llama-bpe")] {
            let mut m = Metadata::new();
            assert_eq!(write(&mut m, n_vocab, pre), n_vocab);
            let distinct: HashSet<_> = m.strings("tokenizer.ggml.tokens").unwrap().iter().collect();
            assert_eq!(distinct.len() as u64, n_vocab);

            let tokenizer = Tokenizer::from_metadata(&m).unwrap();
            let text = "The cat ate. Für Åse: 猫は食べた 🐈\n\n";
            let options = EncodeOptions { add_special: false, ..EncodeOptions::default() };
            let ids = tokenizer.encode(text, options).unwrap();
            assert!(ids.len() < text.len(), "{ids:?}");
            assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
        }
    }
}
