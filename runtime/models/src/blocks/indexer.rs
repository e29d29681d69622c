//! Indexers of sparse attention: which positions a query attends to. Keys of their own, short and the same for all heads,
//! are cached; each query scores them, and attends to those that it scores best.

use super::attention::{cache, paged};
use crate::batch::BatchShape;
use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_abi::op::PagedScoresParams;
use llmrt_graph::{Role, Tensor};

/// The positions [n, 1, n_tokens] of the keys that suit the queries best, by the weighted sum of what they have in common
/// with the heads of a query (DeepSeek-V3.2). `low` is between Q's matrices. `None`: all.
pub(crate) fn lightning_indexer(b: &mut Builder<'_>, h: Tensor, low: Tensor) -> Result<Option<Tensor>> {
    let cfg = &b.cfg.indexer;
    let key = b.matmul("indexer.attn_k", cfg.key_dim, h)?; // [key_dim, n_tokens]
    let key = layer_norm(b, "indexer.k_norm", key)?;
    let key = b.g.split_heads(key, 1);
    let key = rope_at(b, "indexer_k", key, 0.0);
    let cache = index_cache(b, key)?;
    if sees_all(b, cfg.top_k) {
        return Ok(None);
    }
    let scores = weighted_scores(b, h, low, cache, 1)?; // [n, n_tokens]
    let ids = best(b, scores, cfg.top_k);
    let [n, n_tokens, ..] = b.g.ne(ids);
    Ok(Some(b.g.reshape(ids, &[n, 1, n_tokens])))
}

/// Scores by heads with weights of their own.
pub(super) fn weighted_scores(
    b: &mut Builder<'_>,
    h: Tensor,
    low: Tensor,
    cache: Tensor,
    stride: u64,
) -> Result<Tensor> {
    let cfg = &b.cfg.indexer;
    let q = b.matmul("indexer.attn_q_b", cfg.key_dim * cfg.n_head, low)?;
    let q = b.g.split_heads(q, cfg.n_head); // [key_dim, n_head, n_tokens]
    let q = rope_at(b, "indexer_q", q, 0.0);
    let weights = b.matmul("indexer.proj", cfg.n_head, h)?; // [n_head, n_tokens]
    let weights = b.g.scale(weights, ((cfg.key_dim * cfg.n_head) as f32).sqrt().recip());
    Ok(scores(b, q, cache, Some(weights), stride, false))
}

pub(super) fn layer_norm(b: &mut Builder<'_>, name: &str, x: Tensor) -> Result<Tensor> {
    let n = b.g.ne(x)[0];
    let weight = b.weight(&format!("{name}.weight"), &[n], Role::Norm)?;
    let bias = b.weight(&format!("{name}.bias"), &[n], Role::Bias)?;
    let y = b.g.layer_norm(x, weight, bias, b.cfg.indexer.norm_eps);
    Ok(b.name(y, name))
}

/// Turns heads by their positions plus `offset`.
pub(super) fn rope_at(b: &mut Builder<'_>, name: &str, heads: Tensor, offset: f32) -> Tensor {
    if b.cfg.indexer.rope.n_dims == 0 {
        return heads;
    }
    let positions = b.input(Input::Positions);
    let positions = match offset {
        0.0 => positions,
        offset => {
            let positions = b.g.cast(positions, DType::F32);
            let positions = b.g.scale_bias(positions, 1.0, offset);
            b.g.cast(positions, DType::I32)
        }
    };
    let y = b.g.rope(heads, positions, None, &b.cfg.indexer.rope);
    b.name(y, name)
}

/// The layer's cache of the indexer's keys, with those of the step in their slots.
pub(super) fn index_cache(b: &mut Builder<'_>, key: Tensor) -> Result<Tensor> {
    let (dim, dtype) = (b.g.ne(key)[0], b.batch.k_type);
    b.add_index(dim);
    let cache = cache(b, 0, Role::KCache, ["index", "index_cache"], dtype, [dim, dim])?;
    let slots = b.input(Input::Slots(0));
    Ok(b.g.set_rows(cache, key, slots))
}

/// Whether every position of a step's sequences is among `top_k`. The graph that finds the model's tensors has them all.
pub(super) fn sees_all(b: &Builder<'_>, top_k: u64) -> bool {
    *b.batch != BatchShape::SMALLEST && b.batch.max_blocks.saturating_mul(b.batch.block_size) <= top_k
}

/// How well keys suit queries: [n, n_tokens], or [n, n_head, n_tokens] by head.
pub(super) fn scores(
    b: &mut Builder<'_>,
    q: Tensor,
    cache: Tensor,
    weights: Option<Tensor>,
    stride: u64,
    by_head: bool,
) -> Tensor {
    let paged = paged(b, 0);
    let (block_size, stride) = (b.batch.block_size as u32, stride as u32);
    let params = PagedScoresParams { block_size, stride, by_head: by_head.into() };
    let y = b.g.paged_scores(q, cache, weights, &paged, &params);
    b.name(y, "indexer_score")
}

/// The `n` best, or all where there are fewer.
pub(super) fn best(b: &mut Builder<'_>, scores: Tensor, n: u64) -> Tensor {
    let n = n.min(b.g.ne(scores)[0]);
    let ids = b.g.top_k(scores, n as u32);
    b.name(ids, "indexer_top_k")
}
