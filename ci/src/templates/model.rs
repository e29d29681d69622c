//! The smallest models that llama.cpp's server and llmrt's load; their answers are of no use.

use llmrt_abi::DType;
use llmrt_gguf::{Array, Metadata, TensorShape, Value, writer};
use std::path::{Path, PathBuf};

const N_EMBD: u64 = 32;

/// Writes a llama of one layer with this vocabulary, whose weights are zeros.
pub fn write(file: &Path, vocabulary: Metadata) -> Result<PathBuf, String> {
    let metadata = with_sizes(vocabulary);
    let n_vocab = metadata.strings("tokenizer.ggml.tokens").map_or(0, <[String]>::len) as u64;
    let matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let mut shapes = vec![("token_embd.weight".to_string(), vec![N_EMBD, n_vocab])];
    shapes.extend(
        ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]
            .map(|name| (format!("{name}.weight"), vec![N_EMBD])),
    );
    shapes.extend(matrices.map(|name| (format!("blk.0.{name}.weight"), vec![N_EMBD, N_EMBD])));
    let tensors: Vec<TensorShape> = shapes
        .into_iter()
        .map(|(name, dims)| TensorShape::new(name, DType::F32, &dims))
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let zeros = vec![0; (4 * N_EMBD * n_vocab.max(N_EMBD)) as usize];
    let data: Vec<&[u8]> =
        tensors.iter().map(|tensor| &zeros[..4 * tensor.ne.iter().product::<u64>() as usize]).collect();
    let tables = writer::Tables { metadata, tensors, ..Default::default() };
    let bytes = writer::to_vec(&tables, &data).map_err(|e| e.to_string())?;
    std::fs::write(file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file.into())
}

/// With the architecture and the sizes of the model.
fn with_sizes(mut m: Metadata) -> Metadata {
    m.set("general.architecture", "llama");
    for (key, n) in [
        ("block_count", 1),
        ("context_length", 8192),
        ("embedding_length", N_EMBD as u32),
        ("feed_forward_length", N_EMBD as u32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", N_EMBD as u32 / 2),
    ] {
        m.set(format!("llama.{key}"), n);
    }
    m.set("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    m
}

/// What templates need. No token comes in front of a text by itself, since llama.cpp leaves it out of prompts then.
pub fn vocabulary() -> Metadata {
    let mut m = Metadata::new();
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into_iter().chain(bytes).collect();
    let types = [2, 3, 3].into_iter().chain([6; 256]).collect();
    m.set("tokenizer.ggml.model", "llama");
    m.set("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; tokens.len()])));
    m.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    m.set("tokenizer.ggml.bos_token_id", 1u32);
    m.set("tokenizer.ggml.eos_token_id", 2u32);
    m.set("tokenizer.ggml.add_bos_token", false);
    m
}
