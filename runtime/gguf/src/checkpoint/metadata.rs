//! A checkpoint's configuration and vocabulary as GGUF metadata of the llama architecture.

use super::config::Config;
use super::tokenizer::TokenizerBin;
use crate::error::Error;
use crate::metadata::Metadata;

/// The metadata that a GGUF file of the same model has. llama2.c rotates adjacent pairs as GGUF's llama does,
/// so the weights need no permutation. Of a longer vocabulary the first `vocab_size` tokens are taken.
pub fn to_metadata(config: &Config, tokenizer: Option<&TokenizerBin>) -> Result<Metadata, Error> {
    let mut m = Metadata::new();
    m.set("general.architecture", "llama");
    m.set("llama.vocab_size", config.vocab_size as u32);
    m.set("llama.context_length", config.seq_len as u32);
    m.set("llama.embedding_length", config.dim as u32);
    m.set("llama.block_count", config.n_layers as u32);
    m.set("llama.feed_forward_length", config.hidden_dim as u32);
    m.set("llama.attention.head_count", config.n_heads as u32);
    m.set("llama.attention.head_count_kv", config.n_kv_heads as u32);
    m.set("llama.rope.dimension_count", config.head_size() as u32);
    m.set("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    m.set("llama.rope.freq_base", 10000.0f32);
    if let Some(tokenizer) = tokenizer {
        set_vocabulary(&mut m, config, tokenizer)?;
    }
    Ok(m)
}

fn set_vocabulary(m: &mut Metadata, config: &Config, tokenizer: &TokenizerBin) -> Result<(), Error> {
    let (found, expected) = (tokenizer.tokens.len(), config.vocab_size);
    let Some(tokens) = usize::try_from(expected).ok().and_then(|n| tokenizer.tokens.get(..n)) else {
        return Err(Error::BadTokenizer(format!(
            "it holds {found} tokens, the checkpoint's vocab_size is {expected}; take the tokenizer of this model"
        )));
    };
    m.set("tokenizer.ggml.model", "llama");
    m.set(
        "tokenizer.ggml.tokens",
        tokens.iter().enumerate().map(|(id, t)| text(id, &t.1)).collect::<Vec<_>>(),
    );
    m.set("tokenizer.ggml.scores", tokens.iter().map(|t| t.0).collect::<Vec<_>>());
    m.set("tokenizer.ggml.token_type", (0..tokens.len()).map(token_type).collect::<Vec<_>>());
    m.set("tokenizer.ggml.bos_token_id", 1u32);
    m.set("tokenizer.ggml.eos_token_id", 2u32);
    m.set("tokenizer.ggml.unknown_token_id", 0u32);
    m.set("tokenizer.ggml.add_bos_token", true);
    m.set("tokenizer.ggml.add_eos_token", false);
    m.set("tokenizer.ggml.add_space_prefix", true);
    Ok(())
}

/// SentencePiece's spelling: fixed names for the first 259 tokens, and `▁` where tokenizer.bin has a space.
fn text(id: usize, bytes: &[u8]) -> String {
    match id {
        0 => "<unk>".into(),
        1 => "<s>".into(),
        2 => "</s>".into(),
        3..=258 => format!("<0x{:02X}>", id - 3),
        _ => String::from_utf8_lossy(bytes).replace(' ', "\u{2581}"),
    }
}

/// GGUF's token types: 1 normal, 2 unknown, 3 control, 6 byte.
fn token_type(id: usize) -> i32 {
    match id {
        0 => 2,
        1 | 2 => 3,
        3..=258 => 6,
        _ => 1,
    }
}
