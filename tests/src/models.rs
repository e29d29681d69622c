//! Small models with seeded weights, written as GGUF files.

mod deepseek2;
mod falcon;
mod file;
mod gemma3;
mod mamba2;
mod qwen35;
pub mod text;

pub use deepseek2::TinyDeepseek2;
pub use falcon::TinyFalcon;
pub use file::with_vocabulary;
pub use gemma3::TinyGemma3;
pub use mamba2::TinyMamba2;
pub use qwen35::TinyQwen35;

use file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Numbers of a small llama.
#[derive(Clone, Copy, Debug)]
pub struct TinyLlama {
    /// Layers.
    pub n_layer: u64,
    /// Elements of a hidden state; a multiple of 256 suits every matrix type.
    pub n_embd: u64,
    /// Tokens.
    pub n_vocab: u64,
    /// Type of the matrices.
    pub dtype: DType,
}

impl Default for TinyLlama {
    fn default() -> TinyLlama {
        TinyLlama { n_layer: 2, n_embd: 64, n_vocab: 300, dtype: DType::F32 }
    }
}

impl TinyLlama {
    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("tiny.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut t = Tensors::new();
        let (embd, kv, ff) = (self.n_embd, self.n_embd / 2, self.n_embd * 2);
        t.add("token_embd.weight", self.dtype, &[embd, self.n_vocab], 1.0, 0.0);
        t.add("output_norm.weight", DType::F32, &[embd], 0.1, 1.0);
        t.add("output.weight", self.dtype, &[embd, self.n_vocab], 0.2, 0.0);
        for i in 0..self.n_layer {
            let scale = 2.0 / (embd as f32).sqrt();
            t.add(format!("blk.{i}.attn_norm.weight"), DType::F32, &[embd], 0.1, 1.0);
            t.add(format!("blk.{i}.attn_q.weight"), self.dtype, &[embd, embd], scale, 0.0);
            t.add(format!("blk.{i}.attn_k.weight"), self.dtype, &[embd, kv], scale, 0.0);
            t.add(format!("blk.{i}.attn_v.weight"), self.dtype, &[embd, kv], scale, 0.0);
            t.add(format!("blk.{i}.attn_output.weight"), self.dtype, &[embd, embd], scale, 0.0);
            t.add(format!("blk.{i}.ffn_norm.weight"), DType::F32, &[embd], 0.1, 1.0);
            t.add(format!("blk.{i}.ffn_gate.weight"), self.dtype, &[embd, ff], scale, 0.0);
            t.add(format!("blk.{i}.ffn_up.weight"), self.dtype, &[embd, ff], scale, 0.0);
            t.add(format!("blk.{i}.ffn_down.weight"), self.dtype, &[ff, embd], scale, 0.0);
        }
        t.file(self.metadata())
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "llama");
        m.set("llama.block_count", self.n_layer as u32);
        m.set("llama.context_length", 256u32);
        m.set("llama.embedding_length", self.n_embd as u32);
        m.set("llama.feed_forward_length", 2 * self.n_embd as u32);
        m.set("llama.attention.head_count", 4u32);
        m.set("llama.attention.head_count_kv", 2u32);
        m.set("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
        m.set("llama.rope.dimension_count", self.n_embd as u32 / 4);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}
