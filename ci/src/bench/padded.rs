//! A llama with longer rows that computes the same: zeros after every row, so that blocks of 256 elements fit.

use llmrt_abi::DType;
use llmrt_gguf::{Gguf, TensorInfo, TensorShape, writer};
use std::path::Path;

/// Elements of the longest blocks.
const BLOCK: u64 = 256;

/// Writes `to`, a copy of `from`, whose tensors are F32, with rows that are whole blocks.
///
/// Hidden states get zeros, heads and units of the feed-forward network more that are zero. A norm divides by the
/// root of a mean over more elements, so its weights and its eps take in by how many.
pub fn write(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let bytes = std::fs::read(from).map_err(|e| failed(from, &e))?;
    std::fs::write(to, padded(&bytes).map_err(|e| failed(from, &e))?).map_err(|e| failed(to, &e))
}

fn padded(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let text = |e: llmrt_gguf::Error| e.to_string();
    let gguf = Gguf::parse(bytes, bytes.len() as u64).map_err(text)?;
    let mut metadata = gguf.metadata.clone();
    let number = |key: &str| gguf.metadata.require_u64(&format!("llama.{key}")).map_err(text);
    let (n_embd, n_ff) = (number("embedding_length")?, number("feed_forward_length")?);
    let (n_head, n_kv) = (number("attention.head_count")?, number("attention.head_count_kv")?);
    let sizes = Sizes { n_embd, n_ff, head_dim: n_embd / n_head, n_group: n_head / n_kv };

    let (wide_embd, wide_ff) = (wide(n_embd), wide(n_ff));
    let more = wide_embd as f32 / n_embd as f32;
    let eps = gguf.metadata.require_f32("llama.attention.layer_norm_rms_epsilon").map_err(text)?;
    metadata.set("llama.attention.layer_norm_rms_epsilon", eps / more);
    let n_heads = wide_embd / sizes.head_dim;
    for (key, n) in [
        ("embedding_length", wide_embd),
        ("feed_forward_length", wide_ff),
        ("attention.head_count", n_heads),
        ("attention.head_count_kv", n_heads / sizes.n_group),
    ] {
        metadata.set(format!("llama.{key}"), n as u32);
    }

    let (mut tensors, mut data) = (Vec::new(), Vec::new());
    for t in &gguf.tensors {
        let values = values(t, bytes)?;
        let is_norm = t.name.ends_with("norm.weight");
        let scale = if is_norm { more.sqrt().recip() } else { 1.0 };
        let dims: Vec<u64> = (0..t.n_dims as usize).map(|i| sizes.widened(&t.name, i, t.ne[i])).collect();
        data.push(rows(&values, t.ne[0] as usize, &dims, scale));
        tensors.push(TensorShape::new(t.name.clone(), DType::F32, &dims).map_err(text)?);
    }
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let tables = writer::Tables { metadata, tensors, ..Default::default() };
    writer::to_vec(&tables, &slices).map_err(|e| e.to_string())
}

/// Numbers of the model before.
struct Sizes {
    n_embd: u64,
    n_ff: u64,
    head_dim: u64,
    /// Query heads of a KV head.
    n_group: u64,
}

impl Sizes {
    /// What dim `i` of a tensor becomes: rows of keys and values are those of fewer heads; the vocabulary stays.
    fn widened(&self, name: &str, i: usize, n: u64) -> u64 {
        let is_kv = i == 1 && (name.ends_with("attn_k.weight") || name.ends_with("attn_v.weight"));
        match (is_kv, n) {
            (true, _) => wide(self.n_embd) / self.n_group,
            (_, n) if n == self.n_embd || n == self.n_ff => wide(n),
            (_, n) => n,
        }
    }
}

fn wide(n: u64) -> u64 {
    n.next_multiple_of(BLOCK)
}

fn values(t: &TensorInfo, file: &[u8]) -> Result<Vec<f32>, String> {
    let bytes = file.get(t.offset as usize..(t.offset + t.nbytes) as usize);
    match (t.dtype, bytes) {
        (DType::F32, Some(bytes)) => {
            Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
        }
        (dtype, _) => Err(format!("tensor `{}` is {dtype}, expected F32 inside the file", t.name)),
    }
}

/// Rows of `n` elements, times `scale`, as the beginnings of rows in a tensor of zeros.
fn rows(values: &[f32], n: usize, dims: &[u64], scale: f32) -> Vec<u8> {
    let (n_wide, n_rows) = (dims[0] as usize, dims[1..].iter().product::<u64>() as usize);
    let mut all = vec![0.0; n_wide * n_rows];
    for (wide, row) in all.chunks_exact_mut(n_wide).zip(values.chunks_exact(n)) {
        wide.iter_mut().zip(row).for_each(|(wide, x)| *wide = x * scale);
    }
    all.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_zeros_and_a_tensor_gets_rows_of_zeros() {
        let bytes = rows(&[1.0, 2.0, 3.0, 4.0], 2, &[3, 3], 2.0);
        let values: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!(values, [2.0, 4.0, 0.0, 6.0, 8.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn only_dims_of_hidden_states_heads_and_units_grow() {
        let sizes = Sizes { n_embd: 192, n_ff: 448, head_dim: 32, n_group: 2 };
        let dims = |name: &str, dims: [u64; 2]| [0, 1].map(|i| sizes.widened(name, i, dims[i]));
        assert_eq!(dims("blk.0.attn_k.weight", [192, 96]), [256, 128]);
        assert_eq!(dims("blk.0.ffn_down.weight", [448, 192]), [512, 256]);
        assert_eq!(dims("token_embd.weight", [192, 1024]), [256, 1024]);
    }
}
