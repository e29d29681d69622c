//! Shapes of known models: their hyperparameters, and the tensors these mean. Numbers from the models' published
//! configurations.

use llmrt_abi::DType;
use llmrt_gguf::{Metadata, TensorShape};
use std::f32::consts::TAU;

/// More layers than any model has.
pub const MAX_LAYERS: u64 = 1024;

/// Hyperparameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Its name, lower case.
    pub name: &'static str,
    /// `general.architecture`.
    pub arch: &'static str,
    /// Layers.
    pub n_layers: u64,
    /// Elements of a hidden state.
    pub n_embd: u64,
    /// Elements between the matrices of the FFN, or of one expert.
    pub n_ff: u64,
    /// Query heads.
    pub n_heads: u64,
    /// KV heads.
    pub n_kv_heads: u64,
    /// Tokens of the vocabulary.
    pub n_vocab: u64,
    /// Tokens it was trained on.
    pub n_ctx: u64,
    rope_base: f32,
    /// Llama 3.1's factor for low frequencies; 1: none.
    rope_factor: f32,
    norm_eps: f32,
    /// The token embeddings are the output matrix too.
    is_tied: bool,
    /// Queries, keys and values get a bias.
    has_qkv_bias: bool,
    /// Experts and how many of them a token uses; 0: a dense FFN.
    n_experts: [u64; 2],
}

const LLAMA: Shape = Shape {
    name: "llama-3.2-1b",
    arch: "llama",
    n_layers: 16,
    n_embd: 2048,
    n_ff: 8192,
    n_heads: 32,
    n_kv_heads: 8,
    n_vocab: 128_256,
    n_ctx: 131_072,
    rope_base: 500_000.0,
    rope_factor: 32.0,
    norm_eps: 1e-5,
    is_tied: true,
    has_qkv_bias: false,
    n_experts: [0, 0],
};

const SHAPES: &[Shape] = &[
    Shape {
        name: "qwen2.5-0.5b",
        arch: "qwen2",
        n_layers: 24,
        n_embd: 896,
        n_ff: 4864,
        n_heads: 14,
        n_kv_heads: 2,
        n_vocab: 151_936,
        n_ctx: 32_768,
        rope_base: 1e6,
        rope_factor: 1.0,
        norm_eps: 1e-6,
        has_qkv_bias: true,
        ..LLAMA
    },
    LLAMA,
    Shape {
        name: "llama-3.1-8b",
        n_layers: 32,
        n_embd: 4096,
        n_ff: 14_336,
        rope_factor: 8.0,
        is_tied: false,
        ..LLAMA
    },
    Shape {
        name: "mixtral-8x7b",
        n_layers: 32,
        n_embd: 4096,
        n_ff: 14_336,
        n_vocab: 32_000,
        n_ctx: 32_768,
        rope_base: 1e6,
        rope_factor: 1.0,
        is_tied: false,
        n_experts: [8, 2],
        ..LLAMA
    },
];

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let names = || SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
        let found = SHAPES.iter().find(|shape| shape.name.eq_ignore_ascii_case(text));
        found.copied().ok_or_else(|| format!("expected one of {}", names()))
    }
}

/// A tensor and what its numbers are.
pub struct Part {
    name: String,
    /// Innermost first.
    dims: Vec<u64>,
    /// What it is filled with.
    pub content: Content,
}

/// What a tensor is filled with.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Random numbers of this standard deviation.
    Random(f32),
    /// These.
    Given(Vec<f32>),
}

impl Part {
    /// As a file would describe it, with F32 elements.
    pub fn shape(&self) -> Result<TensorShape, llmrt_gguf::Error> {
        TensorShape::new(self.name.clone(), DType::F32, &self.dims)
    }
}

impl Shape {
    /// Its metadata, without the vocabulary.
    pub fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", self.arch);
        m.set("general.name", format!("{} with random weights", self.name));
        let mut set = |key: &str, n: u64| m.set(format!("{}.{key}", self.arch), n as u32);
        set("block_count", self.n_layers);
        set("context_length", self.n_ctx);
        set("embedding_length", self.n_embd);
        set("feed_forward_length", self.n_ff);
        set("attention.head_count", self.n_heads);
        set("attention.head_count_kv", self.n_kv_heads);
        set("rope.dimension_count", self.head_dim());
        if self.n_experts[0] > 0 {
            set("expert_count", self.n_experts[0]);
            set("expert_used_count", self.n_experts[1]);
        }
        m.set(format!("{}.attention.layer_norm_rms_epsilon", self.arch), self.norm_eps);
        m.set(format!("{}.rope.freq_base", self.arch), self.rope_base);
        m
    }

    fn head_dim(&self) -> u64 {
        self.n_embd / self.n_heads
    }

    /// The tensors in the order of a file. Matrices have a deviation of 1/√columns, which keeps hidden states in range.
    pub fn parts(&self, n_vocab: u64) -> Vec<Part> {
        let (embd, ff, kv) = (self.n_embd, self.n_ff, self.head_dim() * self.n_kv_heads);
        let mut parts = vec![matrix("token_embd.weight", &[embd, n_vocab])];
        if self.rope_factor > 1.0 {
            let factors = self.rope_factors();
            parts.push(given("rope_freqs.weight", factors));
        }
        for il in 0..self.n_layers {
            let name = |part: &str| format!("blk.{il}.{part}");
            parts.push(norm(name("attn_norm.weight"), embd));
            for (part, rows) in [("attn_q", embd), ("attn_k", kv), ("attn_v", kv)] {
                parts.push(matrix(name(&format!("{part}.weight")), &[embd, rows]));
                if self.has_qkv_bias {
                    let (name, content) = (name(&format!("{part}.bias")), Content::Random(0.1));
                    parts.push(Part { name, dims: vec![rows], content });
                }
            }
            parts.push(matrix(name("attn_output.weight"), &[embd, embd]));
            parts.push(norm(name("ffn_norm.weight"), embd));
            match self.n_experts[0] {
                0 => {
                    parts.push(matrix(name("ffn_gate.weight"), &[embd, ff]));
                    parts.push(matrix(name("ffn_up.weight"), &[embd, ff]));
                    parts.push(matrix(name("ffn_down.weight"), &[ff, embd]));
                }
                n => {
                    parts.push(matrix(name("ffn_gate_inp.weight"), &[embd, n]));
                    parts.push(matrix(name("ffn_gate_exps.weight"), &[embd, ff, n]));
                    parts.push(matrix(name("ffn_up_exps.weight"), &[embd, ff, n]));
                    parts.push(matrix(name("ffn_down_exps.weight"), &[ff, embd, n]));
                }
            }
        }
        parts.push(norm("output_norm.weight", embd));
        if !self.is_tied {
            parts.push(matrix("output.weight", &[embd, n_vocab]));
        }
        parts
    }

    /// What Llama 3.1 divides frequencies by: 1 where a wave is shorter than a quarter of 8192 positions, the factor
    /// where it is longer than all of them, and between the two a mean of 1/factor and 1 by frequency, inverted.
    fn rope_factors(&self) -> Vec<f32> {
        const N_ORIG: f32 = 8192.0;
        let n = self.head_dim();
        let factor = |i: u64| {
            let wave = TAU * self.rope_base.powf(2.0 * i as f32 / n as f32); // positions
            let share = ((N_ORIG / wave - 1.0) / 3.0).clamp(0.0, 1.0);
            ((1.0 - share) / self.rope_factor + share).recip()
        };
        (0..n / 2).map(factor).collect()
    }
}

fn matrix(name: impl Into<String>, dims: &[u64]) -> Part {
    let deviation = (dims[0] as f32).sqrt().recip();
    Part { name: name.into(), dims: dims.to_vec(), content: Content::Random(deviation) }
}

fn norm(name: impl Into<String>, n: u64) -> Part {
    given(name, vec![1.0; n as usize])
}

fn given(name: impl Into<String>, values: Vec<f32>) -> Part {
    Part { name: name.into(), dims: vec![values.len() as u64], content: Content::Given(values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, n_params: u64) {
        let shape: Shape = name.parse().unwrap();
        let parts = shape.parts(shape.n_vocab);
        let n: u64 = parts.iter().map(|part| part.dims.iter().product::<u64>()).sum();
        assert_eq!(n, n_params, "{name}");
    }

    #[test]
    fn shapes_have_as_many_parameters_as_the_models() {
        check("qwen2.5-0.5b", 494_032_768);
        check("llama-3.2-1b", 1_235_814_400 + 32);
        check("llama-3.1-8b", 8_030_261_248 + 64);
        check("mixtral-8x7b", 46_702_792_704);
    }

    #[test]
    fn rope_factors_go_from_1_to_the_models_factor() {
        let factors = LLAMA.rope_factors();
        assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 32.0));
        assert!(factors.is_sorted(), "{factors:?}");
        assert!(factors.iter().any(|&f| f > 1.0 && f < 32.0));
    }
}
