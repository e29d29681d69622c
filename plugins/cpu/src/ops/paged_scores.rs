//! y[i, t] = Σₕ w[h, t] · max(qₕ · kᵢ, 0) for the keys of a paged cache. Members of the team take tiles of keys by tokens,
//! decode each key once and score it for all tokens of the tile.

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Reach, Sizes};
use super::recurrence::dot;
use super::{Args, Output, Worker, elementwise};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::abi::op::PagedScoresParams;
use llmrt_plugin::{DType, NodeView, Reason};

/// Keys and tokens of a tile.
const KEYS: usize = 256;
const TOKENS: usize = 16;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PagedScoresParams::from_bytes(node.params_bytes()))?;
    let [dim, n_heads, n_tokens, ne3] = check::floats(node, 0)?.ne();
    let cache = check::decodable(node, 1)?.ne();
    ensure(p.block_size > 0, Reason::Param)?;
    ensure(ne3 == 1 && cache == [dim, cache[1], 1, 1], Reason::Shape)?;
    paging::supports(node, 2)?;
    if let Some(weights) = check::optional_floats(node, 5)? {
        ensure(p.by_head == 0 && weights.ne() == [n_heads, n_tokens, 1, 1], Reason::Shape)?;
    }
    let n_positions = check::product(&[check::ints(node, 2)?.ne()[0], p.block_size as usize])?;
    let n_keys = n_positions / p.stride.max(1) as usize;
    let ne = if p.by_head == 0 { [n_keys, n_tokens, 1, 1] } else { [n_keys, n_heads, n_tokens, 1] };
    check::result(node, DType::F32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(PagedScoresParams::from_bytes);
    let (q, cache) = (a.arg(0), a.arg(1));
    let [_, n_heads, n_tokens, _] = q.ne;
    let stride = p.stride.max(1) as usize;
    let sizes = Sizes { block_size: p.block_size, n_slots: cache.ne[1], n_tokens };
    let paging = Paging::new(a, 2, sizes, Reach::CAUSAL, &mut w.scratch.starts);
    let n_rows = if p.by_head == 0 { 1 } else { n_heads };

    // A dim for tokens of its own, in both forms of the result.
    let out = out.reshaped([a.dst.ne[0], n_rows, n_tokens, 1]);
    for mut tile in out.tiles([KEYS, n_rows, TOKENS, 1]) {
        let [keys, _, tokens, _] = tile.dims();
        for token in tokens.clone() {
            (0..n_rows).for_each(|row| tile.row([row, token, 0]).fill(f32::NEG_INFINITY));
        }
        for seq in 0..paging.lens.len() {
            let queries = paging.queries(seq);
            let queries = queries.start.max(tokens.start)..queries.end.min(tokens.end);
            for key in if queries.is_empty() { 0..0 } else { keys.clone() } {
                let at = (key + 1) * stride - 1;
                let sees = |token: usize| at as i64 <= paging.position(seq, token);
                let seen_from = queries.clone().find(|&token| sees(token)).unwrap_or(queries.end);
                let slot = if seen_from < queries.end { paging.slot(seq, at) } else { None };
                let Some(slot) = slot else { continue };
                let k =
                    elementwise::read(w.isa, cache, [slot, 0, 0], 0..cache.ne[0], &mut w.scratch.floats[0]);
                for token in seen_from..queries.end {
                    for row in 0..n_rows {
                        let heads = if p.by_head == 0 { 0..n_heads } else { row..row + 1 };
                        let score = match p.by_head {
                            0 => weighted(w.isa, a, token, heads, k),
                            _ => plain(w.isa, q.row([row, token, 0]), k),
                        };
                        tile.row([row, token, 0])[key - keys.start] = score;
                    }
                }
            }
        }
    }
}

dispatch! {
    fn plain(q: &[f32], k: &[f32]) -> f32 = dot;
    fn weighted(a: &Args, token: usize, heads: std::ops::Range<usize>, k: &[f32]) -> f32 = weighted_with;
}

#[inline(always)]
fn weighted_with<S: Simd>(s: S, a: &Args, token: usize, heads: std::ops::Range<usize>, k: &[f32]) -> f32 {
    let (q, weights) = (a.arg(0), a.src[5].as_ref().map(|t| t.row([token, 0, 0])));
    let score = |head: usize| dot(s, q.row([head, token, 0]), k).max(0.0);
    heads.map(|head| weights.map_or(1.0, |weights| weights[head]) * score(head)).sum()
}
