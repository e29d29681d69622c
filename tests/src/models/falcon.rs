//! A small falcon: one projection makes queries, keys and values, and all heads share few KV heads.

use super::file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Numbers of a small falcon of two layers.
#[derive(Clone, Copy, Debug)]
pub struct TinyFalcon {
    /// Heads.
    pub n_head: u64,
    /// KV heads; 1 is multi-query attention.
    pub n_head_kv: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Tokens, at least 259.
    pub n_vocab: u64,
}

impl Default for TinyFalcon {
    fn default() -> TinyFalcon {
        TinyFalcon { n_head: 4, n_head_kv: 1, head_dim: 32, n_vocab: 300 }
    }
}

impl TinyFalcon {
    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("tiny-falcon.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    fn bytes(&self) -> Vec<u8> {
        let embd = self.n_head * self.head_dim;
        let qkv = embd + 2 * self.n_head_kv * self.head_dim;
        let scale = 2.0 / (embd as f32).sqrt();
        let mut t = Tensors::new();
        t.add("token_embd.weight", DType::F32, &[embd, self.n_vocab], 1.0, 0.0);
        t.add("output_norm.weight", DType::F32, &[embd], 0.1, 1.0);
        t.add("output_norm.bias", DType::F32, &[embd], 0.1, 0.0);
        t.add("output.weight", DType::F32, &[embd, self.n_vocab], 0.2, 0.0);
        for i in 0..2 {
            t.add(format!("blk.{i}.attn_norm.weight"), DType::F32, &[embd], 0.1, 1.0);
            t.add(format!("blk.{i}.attn_norm.bias"), DType::F32, &[embd], 0.1, 0.0);
            t.add(format!("blk.{i}.attn_qkv.weight"), DType::F32, &[embd, qkv], scale, 0.0);
            t.add(format!("blk.{i}.attn_output.weight"), DType::F32, &[embd, embd], scale, 0.0);
            t.add(format!("blk.{i}.ffn_up.weight"), DType::F32, &[embd, 4 * embd], scale, 0.0);
            t.add(format!("blk.{i}.ffn_down.weight"), DType::F32, &[4 * embd, embd], scale, 0.0);
        }
        t.file(self.metadata(embd))
    }

    fn metadata(&self, embd: u64) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "falcon");
        m.set("falcon.block_count", 2u32);
        m.set("falcon.context_length", 256u32);
        m.set("falcon.embedding_length", embd as u32);
        m.set("falcon.feed_forward_length", 4 * embd as u32);
        m.set("falcon.attention.head_count", self.n_head as u32);
        m.set("falcon.attention.head_count_kv", self.n_head_kv as u32);
        m.set("falcon.attention.layer_norm_epsilon", 1e-5f32);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}
