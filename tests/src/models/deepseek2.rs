//! A small DeepSeek V2: latent attention of several heads, a dense layer, then experts beside a shared FFN.

use super::file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Numbers of a small DeepSeek V2 of two layers, 64 wide.
#[derive(Clone, Copy, Debug)]
pub struct TinyDeepseek2 {
    /// Elements between the two matrices of Q; 0: Q has one.
    pub q_rank: u64,
    /// Groups of experts, of which a token uses one.
    pub n_group: u64,
    /// Tokens, at least 259.
    pub n_vocab: u64,
}

impl Default for TinyDeepseek2 {
    fn default() -> TinyDeepseek2 {
        TinyDeepseek2 { q_rank: 40, n_group: 1, n_vocab: 300 }
    }
}

const EMBD: u64 = 64;
const N_HEAD: u64 = 3;
const KV_RANK: u64 = 32;
const N_ROPE: u64 = 16;
const N_NOPE: u64 = 24;
const V_DIM: u64 = 20;
const N_EXPERT: u64 = 4;
const N_FF: u64 = 48;

impl TinyDeepseek2 {
    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("tiny-deepseek2.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    fn bytes(&self) -> Vec<u8> {
        let mut t = Tensors::new();
        t.add("token_embd.weight", DType::F32, &[EMBD, self.n_vocab], 1.0, 0.0);
        t.add("output_norm.weight", DType::F32, &[EMBD], 0.1, 1.0);
        for i in 0..2 {
            let mut matrix = |name: &str, dims: &[u64]| {
                let scale = 2.0 / (dims[0] as f32).sqrt();
                t.add(format!("blk.{i}.{name}"), DType::F32, dims, scale, 0.0);
            };
            let n_q = (N_NOPE + N_ROPE) * N_HEAD;
            match self.q_rank {
                0 => matrix("attn_q.weight", &[EMBD, n_q]),
                n => {
                    matrix("attn_q_a.weight", &[EMBD, n]);
                    matrix("attn_q_b.weight", &[n, n_q]);
                }
            }
            matrix("attn_kv_a_mqa.weight", &[EMBD, KV_RANK + N_ROPE]);
            matrix("attn_k_b.weight", &[N_NOPE, KV_RANK, N_HEAD]);
            matrix("attn_v_b.weight", &[KV_RANK, V_DIM, N_HEAD]);
            matrix("attn_output.weight", &[V_DIM * N_HEAD, EMBD]);
            match i {
                0 => {
                    matrix("ffn_gate.weight", &[EMBD, 2 * EMBD]);
                    matrix("ffn_up.weight", &[EMBD, 2 * EMBD]);
                    matrix("ffn_down.weight", &[2 * EMBD, EMBD]);
                }
                _ => {
                    matrix("ffn_gate_inp.weight", &[EMBD, N_EXPERT]);
                    matrix("exp_probs_b.bias", &[N_EXPERT]);
                    matrix("ffn_gate_exps.weight", &[EMBD, N_FF, N_EXPERT]);
                    matrix("ffn_up_exps.weight", &[EMBD, N_FF, N_EXPERT]);
                    matrix("ffn_down_exps.weight", &[N_FF, EMBD, N_EXPERT]);
                    matrix("ffn_gate_shexp.weight", &[EMBD, 2 * N_FF]);
                    matrix("ffn_up_shexp.weight", &[EMBD, 2 * N_FF]);
                    matrix("ffn_down_shexp.weight", &[2 * N_FF, EMBD]);
                }
            }
            let norms = [("attn_norm", EMBD), ("ffn_norm", EMBD), ("attn_kv_a_norm", KV_RANK)];
            let of_q = (self.q_rank > 0).then_some(("attn_q_a_norm", self.q_rank));
            for (name, n) in norms.into_iter().chain(of_q) {
                t.add(format!("blk.{i}.{name}.weight"), DType::F32, &[n], 0.1, 1.0);
            }
        }
        t.file(self.metadata())
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "deepseek2");
        let numbers = [
            ("block_count", 2),
            ("context_length", 256),
            ("embedding_length", EMBD),
            ("feed_forward_length", 2 * EMBD),
            ("attention.head_count", N_HEAD),
            ("attention.head_count_kv", 1),
            ("attention.key_length", KV_RANK + N_ROPE),
            ("attention.value_length", KV_RANK),
            ("attention.q_lora_rank", self.q_rank),
            ("attention.kv_lora_rank", KV_RANK),
            ("attention.key_length_mla", N_NOPE + N_ROPE),
            ("attention.value_length_mla", V_DIM),
            ("rope.dimension_count", N_ROPE),
            ("leading_dense_block_count", 1),
            ("expert_count", N_EXPERT),
            ("expert_used_count", 2),
            ("expert_shared_count", 2),
            ("expert_gating_func", 2),
            ("expert_group_count", self.n_group),
            ("expert_group_used_count", 1),
            ("expert_feed_forward_length", N_FF),
        ];
        for (key, n) in numbers {
            m.set(format!("deepseek2.{key}"), n as u32);
        }
        m.set("deepseek2.attention.layer_norm_rms_epsilon", 1e-5f32);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}
