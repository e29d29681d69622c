//! Small models of RWKV's versions and of those that took their heads.

use super::file::{Tensors, vocabulary};
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use std::path::{Path, PathBuf};

/// Which model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rwkv {
    /// RWKV 6.
    V6,
    /// Heads as of RWKV 6, the rest as of Qwen 2.
    V6Qwen2,
    /// RWKV 7.
    V7,
    /// Heads as of RWKV 7, the rest as of Qwen 2.
    V7Qwen2,
}

/// Adds a tensor: name, dims, spread and mean of its random numbers.
type AddTensor<'a> = dyn FnMut(&str, &[u64], f32, f32) + 'a;

/// Numbers of a small RWKV of two layers.
#[derive(Clone, Copy, Debug)]

pub struct TinyRwkv {
    /// Which.
    pub kind: Rwkv,
    /// Elements of a hidden state, a multiple of 4: heads.
    pub n_embd: u64,
    /// Tokens, at least 259.
    pub n_vocab: u64,
}

impl TinyRwkv {
    /// Of this kind.
    pub fn new(kind: Rwkv) -> TinyRwkv {
        TinyRwkv { kind, n_embd: 48, n_vocab: 300 }
    }

    /// Writes the model into `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join(format!("tiny-{}.gguf", self.arch()));
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    fn arch(&self) -> &'static str {
        match self.kind {
            Rwkv::V6 => "rwkv6",
            Rwkv::V6Qwen2 => "rwkv6qwen2",
            Rwkv::V7 => "rwkv7",
            Rwkv::V7Qwen2 => "arwkv7",
        }
    }

    /// Whether FFNs and norms are RWKV's.
    fn is_pure(&self) -> bool {
        matches!(self.kind, Rwkv::V6 | Rwkv::V7)
    }

    fn bytes(&self) -> Vec<u8> {
        let embd = self.n_embd;
        let mut t = Tensors::new();
        t.add("token_embd.weight", DType::F32, &[embd, self.n_vocab], 1.0, 0.0);
        t.add("output.weight", DType::F32, &[embd, self.n_vocab], 0.2, 0.0);
        t.add("output_norm.weight", DType::F32, &[embd], 0.1, 1.0);
        if self.is_pure() {
            t.add("output_norm.bias", DType::F32, &[embd], 0.1, 0.0);
            t.add("token_embd_norm.weight", DType::F32, &[embd], 0.1, 1.0);
            t.add("token_embd_norm.bias", DType::F32, &[embd], 0.1, 0.0);
        }
        for i in 0..2 {
            let mut add = |name: &str, dims: &[u64], scale: f32, bias: f32| {
                t.add(format!("blk.{i}.{name}"), DType::F32, dims, scale, bias);
            };
            self.add_heads(&mut add);
            self.add_ffn(&mut add);
        }
        t.file(self.metadata())
    }

    fn add_heads(&self, add: &mut AddTensor<'_>) {
        let (embd, head_dim) = (self.n_embd, self.n_embd / 4);
        let scale = 2.0 / (embd as f32).sqrt();
        add("attn_norm.weight", &[embd], 0.1, 1.0);
        if self.is_pure() {
            add("attn_norm.bias", &[embd], 0.1, 0.0);
        }
        let n_kv = if self.kind == Rwkv::V6Qwen2 { embd / 2 } else { embd };
        for (name, n) in [("receptance", embd), ("key", n_kv), ("value", n_kv), ("output", embd)] {
            add(&format!("time_mix_{name}.weight"), &[embd, n], scale, 0.0);
        }
        if self.kind != Rwkv::V6Qwen2 {
            add("time_mix_ln.weight", &[embd], 0.1, 1.0);
            add("time_mix_ln.bias", &[embd], 0.1, 0.0);
        }
        if matches!(self.kind, Rwkv::V6 | Rwkv::V6Qwen2) {
            add("time_mix_gate.weight", &[embd, embd], scale, 0.0);
            add("time_mix_lerp_x.weight", &[embd], 0.5, 0.5);
            add("time_mix_lerp_fused.weight", &[embd, 1, 1, 5], 0.5, 0.5);
            add("time_mix_w1.weight", &[embd, 5 * RANK], scale, 0.0);
            add("time_mix_w2.weight", &[RANK, embd, 5], 0.3, 0.0);
            add("time_mix_decay.weight", &[embd], 1.0, -1.0);
            add("time_mix_decay_w1.weight", &[embd, RANK], scale, 0.0);
            add("time_mix_decay_w2.weight", &[RANK, embd], 0.3, 0.0);
            if self.kind == Rwkv::V6 {
                add("time_mix_first.weight", &[head_dim, 4], 0.5, 0.0);
            }
            return;
        }
        for letter in ['w', 'a', 'v'] {
            add(&format!("time_mix_{letter}0.weight"), &[embd], 0.5, 0.0);
            add(&format!("time_mix_{letter}1.weight"), &[embd, RANK], scale, 0.0);
            add(&format!("time_mix_{letter}2.weight"), &[RANK, embd], 0.3, 0.0);
        }
        let has_gate = self.kind == Rwkv::V7;
        if has_gate {
            add("time_mix_g1.weight", &[embd, RANK], scale, 0.0);
            add("time_mix_g2.weight", &[RANK, embd], 0.5, 0.0);
        }
        add("time_mix_lerp_fused.weight", &[embd, 1, 1, if has_gate { 6 } else { 5 }], 0.5, 0.5);
        for name in ["k_k", "k_a", "r_k"] {
            add(&format!("time_mix_{name}.weight"), &[embd], 0.3, 0.7);
        }
    }

    fn add_ffn(&self, add: &mut AddTensor<'_>) {
        let (embd, n_ff) = (self.n_embd, 2 * self.n_embd);
        let scale = 2.0 / (embd as f32).sqrt();
        if !self.is_pure() {
            add("ffn_norm.weight", &[embd], 0.1, 1.0);
            add("ffn_gate.weight", &[embd, n_ff], scale, 0.0);
            add("ffn_up.weight", &[embd, n_ff], scale, 0.0);
            add("ffn_down.weight", &[n_ff, embd], scale, 0.0);
            return;
        }
        add("attn_norm_2.weight", &[embd], 0.1, 1.0);
        add("attn_norm_2.bias", &[embd], 0.1, 0.0);
        add("channel_mix_lerp_k.weight", &[embd], 0.5, 0.5);
        add("channel_mix_key.weight", &[embd, n_ff], scale, 0.0);
        add("channel_mix_value.weight", &[n_ff, embd], scale, 0.0);
        if self.kind == Rwkv::V6 {
            add("channel_mix_lerp_r.weight", &[embd], 0.5, 0.5);
            add("channel_mix_receptance.weight", &[embd, embd], scale, 0.0);
        }
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        let arch = self.arch();
        m.set("general.architecture", arch);
        let numbers = [
            ("block_count", 2),
            ("context_length", 256),
            ("embedding_length", self.n_embd),
            ("feed_forward_length", 2 * self.n_embd),
            ("attention.head_count", 0),
            ("attention.head_count_kv", if self.kind == Rwkv::V6Qwen2 { 2 } else { 0 }),
            ("wkv.head_size", self.n_embd / 4),
            ("rescale_every_n_layers", if self.kind == Rwkv::V6 { 1 } else { 0 }),
            ("time_mix_extra_dim", RANK),
            ("time_decay_extra_dim", RANK),
            ("attention.decay_lora_rank", RANK),
            ("attention.iclr_lora_rank", RANK),
            ("attention.value_residual_mix_lora_rank", RANK),
            ("attention.gate_lora_rank", RANK),
        ];
        for (key, n) in numbers {
            m.set(format!("{arch}.{key}"), n as u32);
        }
        m.set(format!("{arch}.attention.layer_norm_epsilon"), 1e-5f32);
        m.set(format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-5f32);
        vocabulary(&mut m, self.n_vocab);
        m
    }
}

/// Elements between two matrices.
const RANK: u64 = 8;
