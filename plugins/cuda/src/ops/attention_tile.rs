//! Which attention goes to kernels/attention_tile.cu: that of sequences with many new tokens.

use super::attention::dim_v;
use super::source;
use super::tiles::{self, in_sixteens};
use llmrt_plugin::abi::op::AttentionParams;
use llmrt_plugin::{DType, NodeView, Result, TensorView};

/// New tokens of a sequence from which on tiles take it.
const MANY: usize = 16;
/// Rows of a tile: heads that share a KV head, times tokens.
const ROWS: usize = 64;

/// Work in tiles.
pub struct Tiles {
    pub kernel: String,
    pub grid: [usize; 3],
    /// New tokens of a sequence from which on they take it.
    pub many: usize,
    /// Tokens at most of sequences that they leave out.
    pub n_others: usize,
}

/// Where there may be a sequence with many new tokens, and a kernel can read the cache, if it [`is_aligned`]: halves, 16
/// bytes of them at once, or Q8_0.
pub fn tiles(node: &NodeView<'_>, p: &AttentionParams, capability: (i32, i32)) -> Result<Option<Tiles>> {
    let (q, k, v) = (source(node, 0)?, source(node, 1)?, source(node, 2)?);
    let ([dim, n_heads, n_tokens, _], n_seqs) = (q.ne(), source(node, 3)?.ne()[1]);
    let (dim_v, n_kv_heads) = (dim_v(node, p)?, p.n_kv_heads.max(1) as usize);
    let dtype = match (k.dtype(), v.dtype()) {
        (Some(DType::F16 | DType::Q8_0), Some(DType::F16 | DType::Q8_0)) => "f16",
        (Some(DType::BF16), Some(DType::BF16)) if capability >= (8, 0) => "bf16",
        _ => return Ok(None),
    };
    let fits = dim.is_multiple_of(8) && dim_v.is_multiple_of(8) && k.ne()[1] <= i32::MAX as usize;
    // Where every sequence has new tokens, one may have many.
    let is_prompt = n_tokens + 1 >= MANY + n_seqs;
    if !is_prompt || !fits || !is_readable(&k) || !is_readable(&v) {
        return Ok(None);
    }
    let Some(size) = [64, 128, 256].into_iter().find(|size| dim.max(dim_v) <= *size) else { return Ok(None) };
    let n_tiles = n_tiles(n_heads / n_kv_heads, n_tokens, n_seqs);
    // A sequence alone has nothing beside it.
    let (many, n_others) =
        if n_seqs == 1 { (1, 0) } else { (MANY, n_tokens.min((MANY - 1).saturating_mul(n_seqs))) };
    let kernel = format!("attention_tile_{dtype}_{size}");
    Ok((n_tiles <= 65535).then_some(Tiles { kernel, grid: [n_kv_heads, n_tiles, 1], many, n_others }))
}

fn is_readable(t: &TensorView<'_>) -> bool {
    t.dtype() == Some(DType::Q8_0) || in_sixteens(t)
}

/// Whether numbers of a node's cache, other than Q8_0, begin where 16 bytes can be read at once.
pub fn is_aligned(node: &NodeView<'_>) -> Result<bool> {
    let one =
        |t: &TensorView<'_>| -> Result<bool> { Ok(t.dtype() == Some(DType::Q8_0) || tiles::is_aligned(t)?) };
    Ok(one(&source(node, 1)?)? && one(&source(node, 2)?)?)
}

/// Tiles at most: of each sequence, and of tokens before and after them, the last may not be full.
fn n_tiles(group: usize, n_tokens: usize, n_seqs: usize) -> usize {
    (n_tokens * group).div_ceil(ROWS) + n_seqs + 1
}
