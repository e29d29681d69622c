//! Vocabularies in GGUF metadata: a tokenizer or a refusal; a tokenizer takes any text and any id.

use crate::{Target, accepted, samples};
use llmrt_gguf::Gguf;
use llmrt_tokenizer::{ChatTemplate, EncodeOptions, Limits, Tokenizer};

/// Vocabularies in GGUF metadata, and the tokenizers made of them.
pub const TARGET: Target = Target { name: "vocab", check, seeds };

/// Builds the tokenizer and the chat template of a file.
pub fn check(data: &[u8]) {
    let Ok(gguf) = Gguf::parse(data, data.len() as u64) else { return };
    accepted(ChatTemplate::from_metadata(&gguf.metadata));
    if let Some(tokenizer) = accepted(Tokenizer::from_metadata(&gguf.metadata)) {
        takes_texts(&tokenizer, data);
    }
}

/// Encodes some texts, one of them out of `data`, and decodes what comes of them and ids of no token.
pub fn takes_texts(tokenizer: &Tokenizer, data: &[u8]) {
    let tail = String::from_utf8_lossy(&data[data.len().saturating_sub(48)..]);
    for text in ["", " ", "Hello, world  \n\n42 it's", "\u{0}é東\u{1F600}\u{2581}<s></s><|im_start|>", &tail]
    {
        for flags in 0..4 {
            takes_text(
                tokenizer,
                text,
                EncodeOptions { add_special: flags & 1 != 0, parse_special: flags & 2 != 0 },
            );
        }
        accepted(tokenizer.encode_prompt(&text.into(), Limits::NONE));
    }
    let n = tokenizer.n_tokens() as u32;
    for id in [0, 1, n / 2, n - 1] {
        accepted(tokenizer.decode(&[id, id], true)).expect("ids of tokens can be decoded");
        tokenizer.is_eog(id);
    }
    assert!(tokenizer.decode(&[n], true).is_err(), "an id of no token was decoded");
}

/// Encodes a text; the ids are tokens, and streaming them gives what decoding all at once gives.
pub fn takes_text(tokenizer: &Tokenizer, text: &str, options: EncodeOptions) -> Option<Vec<u32>> {
    let ids = accepted(tokenizer.encode(text, options))?;
    assert!(ids.iter().all(|&id| tokenizer.piece(id).is_some()), "an id of no token");
    let whole = tokenizer.decode(&ids, true).expect("ids of tokens can be decoded");
    let mut decoder = tokenizer.decoder(true);
    let mut streamed: String = ids.iter().map(|&id| decoder.push(id).expect("an id of a token")).collect();
    streamed.push_str(&decoder.flush());
    assert_eq!(streamed, whole);
    Some(ids)
}

fn seeds() -> Vec<Vec<u8>> {
    let kinds = [
        ("llama", ""),
        ("gpt2", "llama-bpe"),
        ("gpt2", "deepseek-llm"),
        ("gpt2", "falcon"),
        ("gpt2", "sarvam-moe"),
        ("gemma4", ""),
        ("hybriddna", "gpt-2"),
        ("whitespace", ""),
        ("bert", ""),
        ("t5", ""),
        ("rwkv", ""),
        ("plamo2", ""),
    ];
    kinds.iter().map(|(model, pre)| samples::vocabulary(model, pre)).collect()
}
