//! Indexers of sparse attention: which positions a query attends to. Keys of their own, short and the same for all heads,
//! are cached; each query scores them, and attends to those that it scores best.

use super::attention::{cache, paged};
use super::recurrent::{conv_state, convolved, sequences};
use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_abi::op::PagedScoresParams;
use llmrt_graph::{Role, Tensor};

/// The positions [n, 1, n_tokens] of the blocks whose keys suit the queries best, and of the block that is not complete yet
/// (Qwen 4). A block's key is the mean of those of its positions, then normed and rotated. `None`: all.
pub(crate) fn pooled_indexer(b: &mut Builder<'_>, h: Tensor) -> Result<Option<Tensor>> {
    let (cfg, stride) = (&b.cfg.indexer, b.layer().index_stride);
    let key = b.matmul("indexer.k_proj", cfg.key_dim, h)?; // [key_dim, n_tokens]
    let key = mean_of_last(b, stride, key);
    let key = b.norm("indexer.k_norm", key)?;
    let key = b.g.split_heads(key, 1);
    // A block is where its first position is.
    let key = rope_at(b, "indexer_k", key, 1.0 - stride as f32);
    let cache = index_cache(b, key)?;
    if sees_all(b, cfg.top_k) {
        return Ok(None);
    }

    let q = b.matmul("indexer.q_proj", cfg.key_dim * cfg.n_head, h)?;
    let q = b.g.split_heads(q, cfg.n_head); // [key_dim, n_head, n_tokens]
    let q = b.norm("indexer.q_norm", q)?;
    let q = rope_at(b, "indexer_q", q, 0.0);
    let scores = scores(b, q, cache, None, stride, false);
    let blocks = best(b, scores, cfg.top_k / stride);
    let blocks = b.g.cast(blocks, DType::F32);
    let last = last_block(b, stride);
    let blocks = b.g.concat(blocks, last, 0);
    Ok(Some(chosen_blocks(b, blocks, stride)))
}

/// The positions [n * stride, n_sets, n_tokens] of blocks [n, n_tokens] or [n, n_sets, n_tokens], which are F32.
pub(crate) fn chosen_blocks(b: &mut Builder<'_>, blocks: Tensor, stride: u64) -> Tensor {
    let [n, n_sets, n_tokens] = match b.g.ne(blocks) {
        [n, n_tokens, 1, 1] if n_tokens == b.batch.n_tokens => [n, 1, n_tokens],
        [n, n_sets, n_tokens, _] => [n, n_sets, n_tokens],
    };
    let starts = b.g.scale(blocks, stride as f32);
    let starts = b.g.reshape(starts, &[1, n * n_sets * n_tokens]);
    let all = b.g.repeat(starts, &[stride, n * n_sets * n_tokens]);
    let offsets = b.g.arange(0.0, stride as f32, 1.0);
    let all = b.g.add(all, offsets);
    let all = b.g.cast(all, DType::I32);
    b.g.reshape(all, &[stride * n, n_sets, n_tokens])
}

/// The block that holds the position after each token's, [1, n_tokens]: floor((p + 1) / stride).
fn last_block(b: &mut Builder<'_>, stride: u64) -> Tensor {
    let positions = b.input(Input::Positions);
    let positions = b.g.cast(positions, DType::F32);
    let next = b.g.scale_bias(positions, 1.0, 1.0);
    // A quotient, since a product with 1 / stride may be below the whole number that it should reach.
    let stride = b.g.fill(next, stride as f32);
    let blocks = b.g.div(next, stride);
    let blocks = b.g.floor(blocks);
    let n_tokens = b.g.ne(blocks)[0];
    b.g.reshape(blocks, &[1, n_tokens])
}

/// The mean of each token's row and those of the tokens before it, `n` in all: [dim, n_tokens].
fn mean_of_last(b: &mut Builder<'_>, n: u64, x: Tensor) -> Tensor {
    if n == 1 {
        return x;
    }
    let dim = b.g.ne(x)[0];
    let [state] = b.states([conv_state("index_state", n, dim)]);
    let of = sequences(b);
    let kernel = b.g.arange(0.0, (n * dim) as f32, 1.0);
    let kernel = b.g.fill(kernel, (n as f32).recip());
    let kernel = b.g.reshape(kernel, &[n, dim]);
    convolved(b, kernel, state, &of, x)
}

/// Turns heads by their positions plus `offset`.
fn rope_at(b: &mut Builder<'_>, name: &str, heads: Tensor, offset: f32) -> Tensor {
    let positions = b.input(Input::Positions);
    let positions = match offset {
        0.0 => positions,
        offset => {
            let positions = b.g.cast(positions, DType::F32);
            let positions = b.g.scale_bias(positions, 1.0, offset);
            b.g.cast(positions, DType::I32)
        }
    };
    let y = b.g.rope(heads, positions, None, &b.cfg.rope.params);
    b.name(y, name)
}

/// The layer's cache of the indexer's keys, with those of the step in their slots.
fn index_cache(b: &mut Builder<'_>, key: Tensor) -> Result<Tensor> {
    let (dim, dtype) = (b.g.ne(key)[0], b.batch.k_type);
    b.add_index(dim);
    let cache = cache(b, 0, Role::KCache, ["index", "index_cache"], dtype, [dim, dim])?;
    let slots = b.input(Input::Slots(0));
    Ok(b.g.set_rows(cache, key, slots))
}

/// Whether every position of a step's sequences is among `top_k`.
fn sees_all(b: &Builder<'_>, top_k: u64) -> bool {
    b.batch.max_blocks.saturating_mul(b.batch.block_size) <= top_k
}

/// How well keys suit queries: [n, n_tokens], or [n, n_head, n_tokens] by head.
fn scores(
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
fn best(b: &mut Builder<'_>, scores: Tensor, n: u64) -> Tensor {
    let n = n.min(b.g.ne(scores)[0]);
    let ids = b.g.top_k(scores, n as u32);
    b.name(ids, "indexer_top_k")
}
