//! A small Qwen 3.5: gated delta networks in the first and the last layer, attention between them.

use super::file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Numbers of a small Qwen 3.5 of three layers.
#[derive(Clone, Copy, Debug)]
pub struct TinyQwen35 {
    /// Elements of a hidden state.
    pub n_embd: u64,
    /// Elements of a head of a delta network.
    pub n_state: u64,
    /// Heads of K; twice as many of V.
    pub n_group: u64,
    /// Tokens, at least 259.
    pub n_vocab: u64,
}

impl Default for TinyQwen35 {
    fn default() -> TinyQwen35 {
        TinyQwen35 { n_embd: 48, n_state: 20, n_group: 2, n_vocab: 300 }
    }
}

impl TinyQwen35 {
    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("tiny-qwen35.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    fn bytes(&self) -> Vec<u8> {
        let (embd, n_state, n_head) = (self.n_embd, self.n_state, 2 * self.n_group);
        let (n_inner, head_dim, n_ff) = (n_state * n_head, embd / 4, 2 * embd);
        let n_conv = n_inner + 2 * n_state * self.n_group;
        let scale = 2.0 / (embd as f32).sqrt();
        let mut t = Tensors::new();
        t.add("token_embd.weight", DType::F32, &[embd, self.n_vocab], 1.0, 0.0);
        t.add("output_norm.weight", DType::F32, &[embd], 0.1, 1.0);
        for i in 0..3 {
            let mut add = |name: &str, dims: &[u64], scale, bias| {
                t.add(format!("blk.{i}.{name}"), DType::F32, dims, scale, bias);
            };
            add("attn_norm.weight", &[embd], 0.1, 1.0);
            match i {
                1 => {
                    add("attn_q.weight", &[embd, 2 * embd], scale, 0.0);
                    add("attn_k.weight", &[embd, embd / 2], scale, 0.0);
                    add("attn_v.weight", &[embd, embd / 2], scale, 0.0);
                    add("attn_q_norm.weight", &[head_dim], 0.1, 1.0);
                    add("attn_k_norm.weight", &[head_dim], 0.1, 1.0);
                    add("attn_output.weight", &[embd, embd], scale, 0.0);
                }
                _ => {
                    add("attn_qkv.weight", &[embd, n_conv], scale, 0.0);
                    add("attn_gate.weight", &[embd, n_inner], scale, 0.0);
                    add("ssm_conv1d.weight", &[4, n_conv], 0.5, 0.0);
                    add("ssm_beta.weight", &[embd, n_head], scale, 0.0);
                    add("ssm_alpha.weight", &[embd, n_head], scale, 0.0);
                    add("ssm_dt.bias", &[n_head], 1.0, -1.0);
                    add("ssm_a", &[n_head], 0.4, -0.5);
                    add("ssm_norm.weight", &[n_state], 0.1, 1.0);
                    add("ssm_out.weight", &[n_inner, embd], scale, 0.0);
                }
            }
            add("post_attention_norm.weight", &[embd], 0.1, 1.0);
            add("ffn_gate.weight", &[embd, n_ff], scale, 0.0);
            add("ffn_up.weight", &[embd, n_ff], scale, 0.0);
            add("ffn_down.weight", &[n_ff, embd], scale, 0.0);
        }
        t.file(self.metadata())
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "qwen35");
        let numbers = [
            ("block_count", 3),
            ("context_length", 256),
            ("embedding_length", self.n_embd),
            ("feed_forward_length", 2 * self.n_embd),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("full_attention_interval", 2),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 2 * self.n_group * self.n_state),
            ("ssm.state_size", self.n_state),
            ("ssm.time_step_rank", 2 * self.n_group),
            ("ssm.group_count", self.n_group),
        ];
        for (key, n) in numbers {
            m.set(format!("qwen35.{key}"), n as u32);
        }
        m.set("qwen35.attention.layer_norm_rms_epsilon", 1e-5f32);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}
