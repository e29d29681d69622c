//! y = softmax(softcap(q · k · scale) + bias) · v, causal, over the sequences of a paged KV cache.
//!
//! The work is cut into tiles of queries: some tokens of a sequence with heads that share a KV head. A tile walks the keys
//! in tiles of 64 by position, and keeps an online softmax per query. What a query computes depends on its own position
//! alone: neither on the tile it is in nor on how a prompt was cut.

mod query_tile;

mod attend;
pub mod online_softmax;
mod scores;
mod values;
mod walk;

mod element;
mod kv_rows;

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Sizes};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::AttentionParams;
use llmrt_plugin::{DType, NodeView, Reason};
use query_tile::QueryTile;
use std::ops::Range;

/// Queries times heads of a tile, about.
const TILE_ROWS: usize = 64;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(AttentionParams::from_bytes(node.params_bytes()))?;
    let n_kv_heads = p.n_kv_heads as usize;
    ensure(n_kv_heads > 0 && p.block_size > 0, Reason::Param)?;
    let [head_dim, n_heads, n_tokens, ne3] = check::floats(node, 0)?.ne();
    let (k, v) = (check::decodable(node, 1)?.ne(), check::decodable(node, 2)?.ne());
    ensure(ne3 == 1 && n_heads.is_multiple_of(n_kv_heads), Reason::Shape)?;
    ensure(head_dim.checked_mul(n_kv_heads) == Some(k[0]) && k[2..] == [1, 1], Reason::Shape)?;
    ensure(v[0] % n_kv_heads == 0 && v[1..] == k[1..], Reason::Shape)?;
    paging::supports(node, 3)?;
    if let Some(sinks) = check::optional_floats(node, 6)? {
        check::vector(&sinks, n_heads)?;
    }
    check::result(node, DType::F32, [v[0] / n_kv_heads * n_heads, n_tokens, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(AttentionParams::from_bytes);
    let (q, k, v) = (a.arg(0), a.arg(1), a.arg(2));
    let n_tokens = q.ne[2];
    let sizes = Sizes { block_size: p.block_size, n_slots: k.ne[1], n_tokens, window: p.window };
    let mut starts = std::mem::take(&mut w.scratch.starts);
    let paging = Paging::new(a, 3, sizes, &mut starts);
    zero_unused(w, &out, &paging);

    let tiles = Tiles::new(w.rank.n, &paging, q.ne[1], p.n_kv_heads as usize);
    while let Some((seq, kv_head, heads, tokens)) = tiles.tile(&paging, out.take_in_order()) {
        let tile = QueryTile {
            isa: w.isa,
            p: &p,
            paging,
            q,
            k,
            v,
            y: &a.dst,
            sinks: a.src[6].as_ref().map(|t| t.row([0; 3])),
            seq,
            kv_head,
            heads,
            tokens,
        };
        attend::attend(&tile, w.scratch);
    }
    w.scratch.starts = starts;
}

/// Tokens that belong to no sequence give zeros.
fn zero_unused(w: &Worker<'_>, out: &Output<'_>, paging: &Paging<'_>) {
    let [n, n_tokens, ..] = out.tensor().ne;
    for token in w.rank.share(n_tokens) {
        if !paging.all_queries().contains(&token) {
            // SAFETY: tokens are shared out, and no tile has this one.
            unsafe { out.tile([0..n, token..token + 1, 0..1, 0..1]) }.row([token, 0, 0]).fill(0.0);
        }
    }
}

/// How the queries are cut into tiles.
struct Tiles {
    n_kv_heads: usize,
    /// Heads of a KV head.
    n_group: usize,
    /// Heads of a tile.
    heads: usize,
    /// Tokens of a tile.
    tokens: usize,
}

impl Tiles {
    /// Tiles of about [`TILE_ROWS`], or smaller ones if there would be fewer than threads.
    fn new(n_threads: usize, paging: &Paging<'_>, n_heads: usize, n_kv_heads: usize) -> Tiles {
        let n_group = n_heads / n_kv_heads;
        let mut tiles = Tiles { n_kv_heads, n_group, heads: n_group, tokens: (TILE_ROWS / n_group).max(1) };
        let mut n_tiles = tiles.count(paging);
        while n_tiles > 0 && n_tiles < n_threads && tiles.heads > 1 {
            tiles.heads = tiles.heads.div_ceil(2);
            n_tiles = tiles.count(paging);
        }
        tiles
    }

    fn count(&self, paging: &Paging<'_>) -> usize {
        (0..paging.lens.len()).map(|seq| self.per_seq(paging.queries(seq).len())).sum()
    }

    fn per_seq(&self, n_queries: usize) -> usize {
        n_queries.div_ceil(self.tokens) * self.n_kv_heads * self.n_group.div_ceil(self.heads)
    }

    /// Sequence, KV head, heads and tokens of tile `i`; later tokens, which see more keys, come first.
    fn tile(&self, paging: &Paging<'_>, mut i: usize) -> Option<(usize, usize, Range<usize>, Range<usize>)> {
        for seq in 0..paging.lens.len() {
            let queries = paging.queries(seq);
            let n = self.per_seq(queries.len());
            if i >= n {
                i -= n;
                continue;
            }
            let n_splits = self.n_group.div_ceil(self.heads);
            let (split, kv_head, chunk) =
                (i % n_splits, i / n_splits % self.n_kv_heads, i / n_splits / self.n_kv_heads);
            let head = kv_head * self.n_group + split * self.heads;
            let heads = head..(head + self.heads).min((kv_head + 1) * self.n_group);
            let start = queries.start + (queries.len().div_ceil(self.tokens) - 1 - chunk) * self.tokens;
            return Some((seq, kv_head, heads, start..(start + self.tokens).min(queries.end)));
        }
        None
    }
}
