//! What the floor reads of a GGUF file: sizes and weights of a llama or qwen2 in F32.

use super::tensors::Tensors;
use std::path::Path;

/// A model in memory. Matrices are [rows][columns], row by row.
pub struct Model {
    pub n_embd: usize,
    pub n_head: usize,
    pub n_head_kv: usize,
    pub n_vocab: usize,
    /// What RMSNorm adds to the mean.
    pub eps: f32,
    /// Angle per position of each pair of a head's elements.
    pub freqs: Vec<f32>,
    /// Whether elements i and i + head_dim / 2 make a pair (qwen2), or 2i and 2i + 1 (llama).
    pub has_halves: bool,
    pub layers: Vec<Layer>,
    /// [n_vocab][n_embd]
    pub token_embd: Vec<f32>,
    pub output_norm: Vec<f32>,
    /// [n_vocab][n_embd]; without it the token embeddings serve.
    pub output: Option<Vec<f32>>,
}

/// Weights of a layer.
pub struct Layer {
    pub attn_norm: Vec<f32>,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub attn_output: Linear,
    pub ffn_norm: Vec<f32>,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

/// A matrix and what is added to its products, if anything.
pub struct Linear {
    pub weight: Vec<f32>,
    pub bias: Option<Vec<f32>>,
}

impl Model {
    /// Reads a file; one with a tensor that the floor does not compute with is refused.
    pub fn read(path: &Path) -> Result<Model, String> {
        let name = path.display();
        let mut t = Tensors::open(path)?;
        let metadata = t.metadata.clone();
        let arch = metadata.str("general.architecture").unwrap_or_default();
        if !["llama", "qwen2"].contains(&arch) {
            return Err(format!("{name}: `general.architecture` is {arch:?}, expected llama or qwen2"));
        }
        let size = |key: &str| {
            let n = metadata.require_usize(&format!("{arch}.{key}")).map_err(|e| format!("{name}: {e}"))?;
            if n == 0 { Err(format!("{name}: `{arch}.{key}` is 0")) } else { Ok(n) }
        };
        let number = |key: &str| metadata.f32(&format!("{arch}.{key}"));
        let (n_embd, n_ff) = (size("embedding_length")?, size("feed_forward_length")?);
        let (n_head, n_head_kv) = (size("attention.head_count")?, size("attention.head_count_kv")?);
        let head_dim = n_embd / n_head;
        if n_head % n_head_kv != 0 || head_dim * n_head != n_embd || head_dim % 2 != 0 {
            let found = format!("{n_embd} elements, {n_head} heads, {n_head_kv} KV heads");
            return Err(format!(
                "{name}: {found}, expected even heads of one size, as many for each KV head"
            ));
        }
        if size("rope.dimension_count").is_ok_and(|n| n != head_dim)
            || number("rope.scaling.factor").is_some()
        {
            return Err(format!("{name}: heads are rotated in part or scaled, expected whole and unscaled"));
        }
        let base = number("rope.freq_base").unwrap_or(10000.0);
        let factors = t.optional("rope_freqs.weight", 1, head_dim / 2)?.unwrap_or(vec![1.0; head_dim / 2]);
        let freq = |(i, factor): (usize, &f32)| base.powf(-2.0 * i as f32 / head_dim as f32) / factor;
        let n_vocab = t.n_rows("token_embd.weight");
        let sizes = Sizes { n_embd, n_ff, n_kv: n_head_kv * head_dim };
        let model = Model {
            n_embd,
            n_head,
            n_head_kv,
            n_vocab,
            eps: number("attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
            freqs: factors.iter().enumerate().map(freq).collect(),
            has_halves: arch == "qwen2",
            layers: (0..size("block_count")?)
                .map(|i| Layer::read(&mut t, i, sizes))
                .collect::<Result<_, _>>()?,
            token_embd: t.matrix("token_embd.weight", n_vocab, n_embd)?,
            output_norm: t.vector("output_norm.weight", n_embd)?,
            output: t.optional("output.weight", n_vocab, n_embd)?,
        };
        match t.left() {
            Some(left) => Err(format!("{name}: tensor `{left}` is none that the floor computes with")),
            None => Ok(model),
        }
    }
}

/// Elements of the hidden state, of the feed-forward network, and of all KV heads.
#[derive(Clone, Copy)]
struct Sizes {
    n_embd: usize,
    n_ff: usize,
    n_kv: usize,
}

impl Layer {
    fn read(t: &mut Tensors, i: usize, Sizes { n_embd, n_ff, n_kv }: Sizes) -> Result<Layer, String> {
        let name = |what: &str| format!("blk.{i}.{what}");
        Ok(Layer {
            attn_norm: t.vector(&name("attn_norm.weight"), n_embd)?,
            q: t.linear(&name("attn_q"), n_embd, n_embd)?,
            k: t.linear(&name("attn_k"), n_kv, n_embd)?,
            v: t.linear(&name("attn_v"), n_kv, n_embd)?,
            attn_output: t.linear(&name("attn_output"), n_embd, n_embd)?,
            ffn_norm: t.vector(&name("ffn_norm.weight"), n_embd)?,
            gate: t.linear(&name("ffn_gate"), n_ff, n_embd)?,
            up: t.linear(&name("ffn_up"), n_ff, n_embd)?,
            down: t.linear(&name("ffn_down"), n_embd, n_ff)?,
        })
    }
}
