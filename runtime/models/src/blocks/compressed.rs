//! Compressed sparse attention (DeepSeek-V4): one key, which is also the value, for all heads. A query sees those of a window,
//! and blocks of positions before it as one key each: the blocks that a lightning indexer finds, or all where blocks are long.

use super::attention::{cached_rows, paged};
use super::indexer::{best, index_cache, weighted_scores};
use super::pool::{add_offsets, block_of, only_before, pooled, positions, windows_of};
use crate::builder::Builder;
use crate::cache::{PagedLayer, StateTensor, ValueRows};
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_abi::op::{AttentionParams, RopeParams, SparseAttentionParams};
use llmrt_graph::{Paged, Role, Tensor};

/// Positions of a block whose key reaches over the block before it as well, and which an indexer chooses.
const SHORT: u64 = 4;

/// Heads' results [head_dim * n_head, n_tokens] of queries [head_dim, n_head, n_tokens] and the tokens' own keys
/// [head_dim, n_tokens]. `low` is between Q's matrices.
pub(crate) fn compressed_attention(
    b: &mut Builder<'_>,
    h: Tensor,
    low: Tensor,
    q: Tensor,
    key: Tensor,
) -> Result<Tensor> {
    let (stride, dim, n_tokens) = (b.layer().index_stride, b.cfg.head_dim_k, b.g.ne(key)[1]);
    let states = block_states(["kv_state", "score_state"], dim, stride);
    let block = block_key(b, "attn_compressor", states, dim, stride, h)?; // [dim, n_tokens]
    let both = b.g.concat(key, block, 0);
    let v = ValueRows::ViewOfK(0..2 * dim);
    b.add_paged(PagedLayer { il: b.il(), k_row: 2 * dim, v }, 0);
    let cache = cached_rows(b, 0, Role::KCache, both, dim, 2 * dim)?; // [2 * dim, n_slots]

    // Twice as many slots: a position's own key, then that of the block that ends with it.
    let n_slots = b.g.ne(cache)[1];
    let cache = b.g.reshape(cache, &[dim, 2 * n_slots]);
    let own = own_slots(b);
    let blocks = if stride == SHORT { best_blocks(b, h, low)? } else { all_blocks(b, stride) };
    let end = block_of(b, stride, 1.0);
    let blocks = only_before(b, blocks, end);
    // Block i ends at position (i + 1) * stride - 1; -1 stays below 0.
    let blocks = b.g.scale_bias(blocks, 2.0 * stride as f32, 2.0 * stride as f32 - 1.0);
    let seen = b.g.concat(own, blocks, 0);
    let seen = b.g.cast(seen, DType::I32);
    let n = b.g.ne(seen)[0];
    let seen = b.g.reshape(seen, &[n, 1, n_tokens]);

    let paged = doubled(b);
    let sinks = b.optional("attn_sinks.weight", &[b.layer().n_head], Role::Other)?;
    let params = SparseAttentionParams {
        n_kv_heads: 1,
        block_size: 2 * b.batch.block_size as u32,
        scale: b.cfg.attn_scale,
    };
    let y = b.g.sparse_attention(q, cache, cache, seen, sinks, &paged, &params);
    Ok(b.name(y, "kqv_out"))
}

/// Heads' results [head_dim * n_head, n_tokens] of queries that see the keys of a window alone.
pub(crate) fn attention_to_window(b: &mut Builder<'_>, q: Tensor, key: Tensor) -> Result<Tensor> {
    let (il, dim, window) = (b.il(), b.cfg.head_dim_k, b.layer().window);
    b.add_paged(PagedLayer { il, k_row: dim, v: ValueRows::ViewOfK(0..dim) }, window);
    let cache = cached_rows(b, window, Role::KCache, key, dim, dim)?;
    let paged = paged(b, window);
    let params = AttentionParams {
        n_kv_heads: 1,
        block_size: b.batch.block_size as u32,
        window,
        scale: b.cfg.attn_scale,
        ..AttentionParams::default()
    };
    let y = match b.optional("attn_sinks.weight", &[b.layer().n_head], Role::Other)? {
        None => b.g.attention(q, cache, cache, &paged, &params),
        Some(sinks) => b.g.attention_with_sinks(q, cache, cache, sinks, &paged, &params),
    };
    Ok(b.name(y, "kqv_out"))
}

/// A block's key, at its last position: of the rows of its positions, and in short blocks of half-rows of the block before
/// it and of its own, the weighted sum, normed, and rotated as the block's first position. [dim, n_tokens].
fn block_key(
    b: &mut Builder<'_>,
    name: &str,
    states: [StateTensor; 2],
    dim: u64,
    stride: u64,
    h: Tensor,
) -> Result<Tensor> {
    let (n_rows, width) = window(dim, stride);
    let value = b.matmul(&format!("{name}_kv"), width, h)?;
    let score = b.matmul(&format!("{name}_gate"), width, h)?;
    let score = add_offsets(b, &format!("{name}_ape"), stride, score)?;
    let states = b.states(states);
    let windows = windows_of(b, states, n_rows, [value, score]); // [width, n_rows, n_tokens]
    let [value, score] = if stride == SHORT { windows.map(|t| halves(b, t, dim)) } else { windows };
    let key = pooled(b, value, score);
    let key = b.norm(&format!("{name}_norm"), key)?;
    let key = b.g.split_heads(key, 1);
    let first = positions(b);
    let first = b.g.scale_bias(first, 1.0, 1.0 - stride as f32);
    let first = b.g.cast(first, DType::I32);
    let rope = RopeParams { offset: dim as u32 - b.cfg.rope.params.n_dims, ..b.cfg.rope.params };
    let key = b.g.rope(key, first, None, &rope);
    Ok(b.g.reshape(key, &[dim, b.batch.n_tokens]))
}

/// Rows of a window, and elements of one.
fn window(dim: u64, stride: u64) -> (u64, u64) {
    if stride == SHORT { (2 * stride, 2 * dim) } else { (stride, dim) }
}

fn block_states(kind: [&'static str; 2], dim: u64, stride: u64) -> [StateTensor; 2] {
    let (n_rows, width) = window(dim, stride);
    kind.map(|name| StateTensor { name, row: (n_rows - 1) * width })
}

/// Of windows over two blocks [2 * dim, n_rows, n_tokens] the first half of the earlier rows and the second half of the
/// later ones: [dim, n_rows, n_tokens].
fn halves(b: &mut Builder<'_>, t: Tensor, dim: u64) -> Tensor {
    let n = b.g.ne(t)[1] / 2;
    let parts = [0, 1].map(|i| {
        let half = b.g.slice(t, 0, i * dim, dim);
        let rows = b.g.slice(half, 1, i * n, n);
        b.g.cont(rows)
    });
    b.g.concat(parts[0], parts[1], 1)
}

/// The blocks that suit the queries best, F32 [n, n_tokens].
fn best_blocks(b: &mut Builder<'_>, h: Tensor, low: Tensor) -> Result<Tensor> {
    let cfg = &b.cfg.indexer;
    let states = block_states(["index_kv_state", "index_score_state"], cfg.key_dim, SHORT);
    let key = block_key(b, "indexer_compressor", states, cfg.key_dim, SHORT, h)?;
    let cache = index_cache(b, key)?;
    let scores = weighted_scores(b, h, low, cache, SHORT)?;
    let ids = best(b, scores, cfg.top_k);
    Ok(b.g.cast(ids, DType::F32))
}

/// All blocks that a sequence may have, F32 [n, n_tokens].
fn all_blocks(b: &mut Builder<'_>, stride: u64) -> Tensor {
    let n = (b.batch.max_blocks * b.batch.block_size / stride).max(1);
    let ids = b.g.arange(0.0, n as f32, 1.0);
    b.g.repeat(ids, &[n, b.batch.n_tokens])
}

/// The slots of the tokens' own keys in the window, F32 [window, n_tokens]; below 0 before the first.
fn own_slots(b: &mut Builder<'_>) -> Tensor {
    let n_positions = b.batch.max_blocks.saturating_mul(b.batch.block_size);
    let (n, n_tokens) = (n_positions.min(b.cfg.indexer.window.into()), b.batch.n_tokens);
    let back = b.g.arange(0.0, n as f32, 1.0);
    let back = b.g.scale(back, -2.0);
    let back = b.g.repeat(back, &[n, n_tokens]);
    let own = positions(b);
    let own = b.g.scale(own, 2.0);
    let own = b.g.reshape(own, &[1, n_tokens]);
    b.g.add(back, own)
}

/// Where the sequences are in a cache with two slots for each position. Queries then come after all that they may see: which
/// keys those are is chosen.
fn doubled(b: &mut Builder<'_>) -> Paged {
    let paged = paged(b, 0);
    let lens = b.g.cast(paged.seq_lens, DType::F32);
    let lens = b.g.scale(lens, 2.0);
    Paged { seq_lens: b.g.cast(lens, DType::I32), ..paged }
}
