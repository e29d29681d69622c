//! A small Mamba 2: a convolution and a scan in each layer, two groups of heads.

use super::file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Numbers of a small Mamba 2 of two layers.
#[derive(Clone, Copy, Debug)]
pub struct TinyMamba2 {
    /// Elements of a hidden state; twice as many between the matrices of a layer.
    pub n_embd: u64,
    /// Elements of the state for each of these.
    pub n_state: u64,
    /// Heads, in two groups.
    pub n_head: u64,
    /// Tokens, at least 259.
    pub n_vocab: u64,
}

impl Default for TinyMamba2 {
    fn default() -> TinyMamba2 {
        TinyMamba2 { n_embd: 48, n_state: 20, n_head: 6, n_vocab: 300 }
    }
}

impl TinyMamba2 {
    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("tiny-mamba2.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    fn bytes(&self) -> Vec<u8> {
        let (embd, n_inner, n_head) = (self.n_embd, 2 * self.n_embd, self.n_head);
        let n_conv = n_inner + 2 * 2 * self.n_state;
        let scale = 2.0 / (embd as f32).sqrt();
        let mut t = Tensors::new();
        t.add("token_embd.weight", DType::F32, &[embd, self.n_vocab], 1.0, 0.0);
        t.add("output_norm.weight", DType::F32, &[embd], 0.1, 1.0);
        for i in 0..2 {
            let mut add = |name: &str, dims: &[u64], scale, bias| {
                t.add(format!("blk.{i}.{name}"), DType::F32, dims, scale, bias);
            };
            add("attn_norm.weight", &[embd], 0.1, 1.0);
            add("ssm_in.weight", &[embd, n_inner + n_conv + n_head], scale, 0.0);
            add("ssm_conv1d.weight", &[4, n_conv], 0.5, 0.0);
            add("ssm_conv1d.bias", &[n_conv], 0.1, 0.0);
            add("ssm_dt.bias", &[n_head], 1.0, -1.0);
            add("ssm_a", &[1, n_head], 0.4, -0.5);
            add("ssm_d", &[1, n_head], 1.0, 0.0);
            add("ssm_norm.weight", &[n_inner / 2, 2], 0.1, 1.0);
            add("ssm_out.weight", &[n_inner, embd], scale, 0.0);
        }
        t.file(self.metadata())
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "mamba2");
        let numbers = [
            ("block_count", 2),
            ("context_length", 256),
            ("embedding_length", self.n_embd),
            ("feed_forward_length", 0),
            ("attention.head_count", 0),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 2 * self.n_embd),
            ("ssm.state_size", self.n_state),
            ("ssm.time_step_rank", self.n_head),
            ("ssm.group_count", 2),
        ];
        for (key, n) in numbers {
            m.set(format!("mamba2.{key}"), n as u32);
        }
        m.set("mamba2.attention.layer_norm_rms_epsilon", 1e-5f32);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}
