//! A small gemma3: layers with a short window beside one that sees all tokens.

use super::file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Numbers of a small gemma3 of three layers, the last of which has no window.
#[derive(Clone, Copy, Debug)]
pub struct TinyGemma3 {
    /// Tokens that the other layers see.
    pub window: u32,
    /// Tokens of the vocabulary, at least 259.
    pub n_vocab: u64,
}

impl Default for TinyGemma3 {
    fn default() -> TinyGemma3 {
        TinyGemma3 { window: 10, n_vocab: 300 }
    }
}

const N_LAYER: u32 = 3;
const N_EMBD: u64 = 64;
const HEAD_DIM: u64 = 16;

impl TinyGemma3 {
    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("tiny-gemma3.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    fn bytes(&self) -> Vec<u8> {
        let (kv, ff, scale) = (2 * HEAD_DIM, 2 * N_EMBD, 2.0 / (N_EMBD as f32).sqrt());
        let mut t = Tensors::new();
        t.add("token_embd.weight", DType::F32, &[N_EMBD, self.n_vocab], 1.0, 0.0);
        t.add("output_norm.weight", DType::F32, &[N_EMBD], 0.1, 1.0);
        t.add("output.weight", DType::F32, &[N_EMBD, self.n_vocab], 0.2, 0.0);
        for i in 0..N_LAYER {
            for norm in ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"] {
                t.add(format!("blk.{i}.{norm}.weight"), DType::F32, &[N_EMBD], 0.1, 1.0);
            }
            for norm in ["attn_q_norm", "attn_k_norm"] {
                t.add(format!("blk.{i}.{norm}.weight"), DType::F32, &[HEAD_DIM], 0.1, 1.0);
            }
            for (name, dims) in [
                ("attn_q", [N_EMBD, N_EMBD]),
                ("attn_k", [N_EMBD, kv]),
                ("attn_v", [N_EMBD, kv]),
                ("attn_output", [N_EMBD, N_EMBD]),
                ("ffn_gate", [N_EMBD, ff]),
                ("ffn_up", [N_EMBD, ff]),
                ("ffn_down", [ff, N_EMBD]),
            ] {
                t.add(format!("blk.{i}.{name}.weight"), DType::F32, &dims, scale, 0.0);
            }
        }
        t.file(self.metadata())
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "gemma3");
        m.set("gemma3.block_count", N_LAYER);
        m.set("gemma3.context_length", 256u32);
        m.set("gemma3.embedding_length", N_EMBD as u32);
        m.set("gemma3.feed_forward_length", 2 * N_EMBD as u32);
        m.set("gemma3.attention.head_count", 4u32);
        m.set("gemma3.attention.head_count_kv", 2u32);
        m.set("gemma3.attention.key_length", HEAD_DIM as u32);
        m.set("gemma3.attention.value_length", HEAD_DIM as u32);
        m.set("gemma3.attention.layer_norm_rms_epsilon", 1e-5f32);
        m.set("gemma3.attention.sliding_window", self.window);
        m.set("gemma3.attention.sliding_window_pattern", N_LAYER);
        m.set("gemma3.rope.dimension_count", HEAD_DIM as u32);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}
