//! Texts and ids, given to good tokenizers: every text can be encoded, and byte-level ones give it back.

use super::vocab::takes_text;
use crate::{Target, samples};
use llmrt_gguf::Gguf;
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use std::sync::OnceLock;

/// Texts and ids, given to good tokenizers.
pub const TARGET: Target = Target { name: "text", check, seeds };

/// How vocabularies that cut words in different ways are called.
const PRE: [&str; 20] = [
    "default",
    "gpt-2",
    "llama-bpe",
    "jais-2",
    "qwen2",
    "qwen35",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "afmoe",
    "falcon",
    "chameleon",
    "exaone-moe",
    "viking",
    "gpt-4o",
    "tiny_aya",
    "youtu",
    "kimi-k2",
    "bailingmoe",
    "superbpe",
];

/// Tokenizers of other kinds, with the pre-tokenizer if there is one.
const OTHERS: [(&str, &str); 9] = [
    ("llama", ""),
    ("bert", ""),
    ("t5", ""),
    ("rwkv", ""),
    ("plamo2", ""),
    ("gemma4", ""),
    ("gpt2", "sarvam-moe"),
    ("hybriddna", "gpt-2"),
    ("whitespace", "whitespace"),
];

/// The first byte picks the tokenizer, the second its options; the rest is the text.
pub fn check(data: &[u8]) {
    let [which, flags, rest @ ..] = data else { return };
    let text = String::from_utf8_lossy(rest);
    let which = *which as usize % (PRE.len() + OTHERS.len());
    let tokenizer = &tokenizers()[which];
    let options = EncodeOptions { add_special: flags & 1 != 0, parse_special: flags & 2 != 0 };
    let ids = takes_text(tokenizer, &text, options).expect("every text can be encoded");

    let is_bpe = which < PRE.len();
    if is_bpe && options == EncodeOptions::default() {
        assert_eq!(tokenizer.decode(&ids, true).expect("ids of tokens can be decoded"), text);
    }
    let ids: Vec<u32> = rest.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
    crate::accepted(tokenizer.decode(&ids, false));
}

fn tokenizers() -> &'static [Tokenizer] {
    static ALL: OnceLock<Vec<Tokenizer>> = OnceLock::new();
    ALL.get_or_init(|| {
        let bpe = PRE.iter().map(|pre| samples::vocabulary("gpt2", pre));
        let files = bpe.chain(OTHERS.iter().map(|(model, pre)| samples::vocabulary(model, pre)));
        let build = |file: Vec<u8>| {
            let gguf = Gguf::parse(&file, file.len() as u64).expect("the sample is good");
            Tokenizer::from_metadata(&gguf.metadata).expect("the sample is good")
        };
        files.map(build).collect()
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let text = "The 2nd it's  café\n\n東京 100000\t\u{1F600}<s> hello</s><dna>acgtacg</dna>";
    (0..29).map(|which| [&[which, which % 4], text.as_bytes()].concat()).collect()
}
