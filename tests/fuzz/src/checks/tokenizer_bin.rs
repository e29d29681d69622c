//! llama2.c's `tokenizer.bin`: read or refused; the tokenizer made of it takes any text.

use super::vocab::takes_texts;
use crate::{Target, accepted, samples};
use llmrt_gguf::checkpoint::{Checkpoint, TokenizerBin, to_metadata};
use llmrt_tokenizer::Tokenizer;

/// llama2.c's `tokenizer.bin`, and the tokenizer made of it.
pub const TARGET: Target = Target { name: "tokenizer_bin", check, seeds };

/// Reads a file, and uses it for llama2.c's tokenizer and for GGUF's.
pub fn check(data: &[u8]) {
    let Some(parsed) = accepted(TokenizerBin::parse(data)) else { return };
    let header = samples::checkpoint(0);
    let checkpoint = Checkpoint::parse(&header, header.len() as u64).expect("the sample is good");
    if let Some(metadata) = accepted(to_metadata(&checkpoint.config, Some(&parsed)))
        && let Some(tokenizer) = accepted(Tokenizer::from_metadata(&metadata))
    {
        takes_texts(&tokenizer, data);
    }
    if let Some(tokenizer) = accepted(Tokenizer::llama2c(parsed.tokens)) {
        takes_texts(&tokenizer, data);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![samples::tokenizer_bin(&["a", "b", "ab", " ", " a", " ab"]), samples::tokenizer_bin(&[])]
}
