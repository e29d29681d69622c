//! Indexers that choose blocks of positions: by one key for each block, or by the best of its keys.

use super::indexer::{best, index_cache, layer_norm, rope_at, scores, sees_all, weighted_scores};
use super::pool::{add_offsets, block_of, only_before, pooled, windows_of};
use super::recurrent::{conv_state, convolved, sequences};
use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_graph::{Padding, Tensor};

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
    let next = next_block(b, stride);
    let blocks = b.g.concat(blocks, next, 0);
    Ok(Some(chosen_blocks(b, blocks, stride)))
}

/// As `lightning_indexer`, of blocks of positions: a block's key is the sum of those of its positions, weighted by each
/// element's own softmax (GLM 5.3).
pub(crate) fn weighted_pool_indexer(b: &mut Builder<'_>, h: Tensor, low: Tensor) -> Result<Option<Tensor>> {
    let (cfg, stride) = (&b.cfg.indexer, b.layer().index_stride);
    let key = b.matmul("indexer.attn_k", cfg.key_dim, h)?; // [key_dim, n_tokens]
    let key = layer_norm(b, "indexer.k_norm", key)?;
    let score = b.matmul("indexer_compressor_gate", cfg.key_dim, h)?;
    let score = add_offsets(b, "indexer_compressor_ape", stride, score)?;
    let row = (stride - 1) * cfg.key_dim;
    let states = b.states([
        StateTensor { name: "index_key_state", row },
        StateTensor { name: "index_score_state", row },
    ]);
    let [key, score] = windows_of(b, states, stride, [key, score]);
    let key = pooled(b, key, score);
    let cache = index_cache(b, key)?;
    if sees_all(b, cfg.top_k) && !cfg.drops_tail {
        return Ok(None);
    }
    let scores = weighted_scores(b, h, low, cache, stride)?; // [n, n_tokens]
    let blocks = best(b, scores, cfg.top_k / stride);
    let blocks = b.g.cast(blocks, DType::F32);
    let next = next_block(b, stride);
    let blocks = match cfg.drops_tail {
        true => only_before(b, blocks, next),
        false => b.g.concat(blocks, next, 0),
    };
    Ok(Some(chosen_blocks(b, blocks, stride)))
}

/// The positions [n, n_head, n_tokens] of the blocks whose best key suits each head of the indexer best; blocks next to the
/// query count as the best (MiniMax M3). `None`: all.
pub(crate) fn block_indexer(b: &mut Builder<'_>, h: Tensor) -> Result<Option<Tensor>> {
    let cfg = &b.cfg.indexer;
    let key = b.matmul("indexer.k_proj", cfg.key_dim, h)?; // [key_dim, n_tokens]
    let key = b.norm("indexer.k_norm", key)?;
    let key = b.g.split_heads(key, 1);
    let key = rope_at(b, "indexer_k", key, 0.0);
    let cache = index_cache(b, key)?;
    if sees_all(b, cfg.top_k.saturating_mul(cfg.block)) {
        return Ok(None);
    }
    let q = b.matmul("indexer.q_proj", cfg.key_dim * cfg.n_head, h)?;
    let q = b.g.split_heads(q, cfg.n_head); // [key_dim, n_head, n_tokens]
    let q = b.norm("indexer.q_norm", q)?;
    let q = rope_at(b, "indexer_q", q, 0.0);
    let scores = scores(b, q, cache, None, 1, true); // [n, n_head, n_tokens]
    let of_blocks = largest_of_blocks(b, scores, cfg.block);
    let of_blocks = prefer_local(b, of_blocks);
    let blocks = best(b, of_blocks, cfg.top_k);
    let blocks = b.g.cast(blocks, DType::F32);
    Ok(Some(chosen_blocks(b, blocks, cfg.block)))
}

/// The largest of each `n` scores, of which the last may be fewer.
fn largest_of_blocks(b: &mut Builder<'_>, scores: Tensor, n: u64) -> Tensor {
    const LARGEST: u32 = 0;
    let n_missing = b.g.ne(scores)[0].next_multiple_of(n) - b.g.ne(scores)[0];
    let scores = match n_missing {
        0 => scores,
        n => b.g.pad(scores, [0; 4], [n as u32, 0, 0, 0], Padding::Constant(f32::NEG_INFINITY)),
    };
    b.g.pool_1d(scores, LARGEST, n as u32, n as u32, 0)
}

/// Scores of blocks [n, n_head, n_tokens], above all others for the query's own block and those just before it.
fn prefer_local(b: &mut Builder<'_>, scores: Tensor) -> Tensor {
    let (cfg, [n, _, n_tokens, _]) = (&b.cfg.indexer, b.g.ne(scores));
    let own = block_of(b, cfg.block, 0.0); // [1, n_tokens]
    let blocks = b.g.arange(0.0, n as f32, 1.0);
    let blocks = b.g.repeat(blocks, &[n, n_tokens]);
    let after = b.g.sub(blocks, own);
    let is_local = b.g.scale_bias(after, 1.0, cfg.n_local as f32 - 0.5);
    let is_local = b.g.step(is_local);
    let bonus = b.g.scale(is_local, 1e30);
    let bonus = b.g.reshape(bonus, &[n, 1, n_tokens]);
    b.g.add(scores, bonus)
}

/// The positions [n * stride, n_sets, n_tokens] of blocks [n, n_tokens] or [n, n_sets, n_tokens], which are F32.
fn chosen_blocks(b: &mut Builder<'_>, blocks: Tensor, stride: u64) -> Tensor {
    let (all, n_tokens) = (b.g.def(blocks).n_elems(), b.batch.n_tokens);
    let n_sets = match b.g.ne(blocks) {
        [_, n, 1, _] if n == n_tokens => 1,
        [_, n_sets, ..] => n_sets,
    };
    let starts = b.g.scale(blocks, stride as f32);
    let starts = b.g.reshape(starts, &[1, all]);
    let starts = b.g.repeat(starts, &[stride, all]);
    let offsets = b.g.arange(0.0, stride as f32, 1.0);
    let positions = b.g.add(starts, offsets);
    let positions = b.g.cast(positions, DType::I32);
    b.g.reshape(positions, &[stride * all / n_sets / n_tokens, n_sets, n_tokens])
}

/// The block that holds the position after each token's, [1, n_tokens]: it and those after it are not complete.
fn next_block(b: &mut Builder<'_>, stride: u64) -> Tensor {
    block_of(b, stride, 1.0)
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
