//! Small models with seeded weights, written as GGUF files.

use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_gguf::{Array, Value};
use llmrt_gguf::{Metadata, writer};
use llmrt_graph::quant;
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
        let (mut shapes, mut data) = (Vec::new(), Vec::new());
        let mut seed = 1;
        let mut add = |name: String, dtype: DType, dims: &[u64], scale: f32, bias: f32| {
            let n = dims.iter().product::<u64>() as usize;
            let values: Vec<f32> = (0..n).map(|_| bias + scale * next(&mut seed)).collect();
            shapes.push(TensorShape::new(&name, dtype, dims).unwrap());
            data.push(quant::quantise(dtype, &values));
        };
        let (embd, kv, ff) = (self.n_embd, self.n_embd / 2, self.n_embd * 2);
        add("token_embd.weight".into(), self.dtype, &[embd, self.n_vocab], 1.0, 0.0);
        add("output_norm.weight".into(), DType::F32, &[embd], 0.1, 1.0);
        add("output.weight".into(), self.dtype, &[embd, self.n_vocab], 0.2, 0.0);
        for i in 0..self.n_layer {
            let scale = 2.0 / (embd as f32).sqrt();
            add(format!("blk.{i}.attn_norm.weight"), DType::F32, &[embd], 0.1, 1.0);
            add(format!("blk.{i}.attn_q.weight"), self.dtype, &[embd, embd], scale, 0.0);
            add(format!("blk.{i}.attn_k.weight"), self.dtype, &[embd, kv], scale, 0.0);
            add(format!("blk.{i}.attn_v.weight"), self.dtype, &[embd, kv], scale, 0.0);
            add(format!("blk.{i}.attn_output.weight"), self.dtype, &[embd, embd], scale, 0.0);
            add(format!("blk.{i}.ffn_norm.weight"), DType::F32, &[embd], 0.1, 1.0);
            add(format!("blk.{i}.ffn_gate.weight"), self.dtype, &[embd, ff], scale, 0.0);
            add(format!("blk.{i}.ffn_up.weight"), self.dtype, &[embd, ff], scale, 0.0);
            add(format!("blk.{i}.ffn_down.weight"), self.dtype, &[ff, embd], scale, 0.0);
        }
        let tables = writer::Tables { metadata: self.metadata(), tensors: shapes, ..Default::default() };
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        writer::to_vec(&tables, &slices).unwrap()
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
        self.vocabulary(&mut m);
        m
    }

    /// An SPM vocabulary: unknown, BOS, EOS, the bytes, then letters.
    fn vocabulary(&self, m: &mut Metadata) {
        let mut tokens = vec!["<unk>".to_string(), "<s>".into(), "</s>".into()];
        let mut types = vec![2, 3, 3];
        for byte in 0..256 {
            tokens.push(format!("<0x{byte:02X}>"));
            types.push(6);
        }
        let mut letters = "▁abcdefghijklmnopqrstuvwxyz".chars();
        while tokens.len() < self.n_vocab as usize {
            let i = tokens.len();
            tokens.push(letters.next().map_or(format!("w{i}"), String::from));
            types.push(1);
        }
        m.set("tokenizer.ggml.model", "llama");
        m.set("tokenizer.ggml.scores", Value::Array(Array::F32(tokens.iter().map(|_| 0.0).collect())));
        m.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        m.set("tokenizer.ggml.bos_token_id", 1u32);
        m.set("tokenizer.ggml.eos_token_id", 2u32);
    }
}

/// A number in -1..1 (splitmix64).
fn next(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
