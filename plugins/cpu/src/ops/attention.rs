//! y = softmax(softcap(q · k · scale) + bias) · v over the sequences of a paged KV cache.
//!
//! The work is cut into tiles of queries: some tokens of a sequence with heads that share a KV head. A tile walks the keys
//! in tiles of 64 by position, and keeps an online softmax per query. Where tiles would leave members of the team idle, as
//! when one long sequence decodes, they are cut by depth, too: at KV splits, which are merged in order. What a query computes
//! depends on its own position alone: neither on the tile it is in nor on how a prompt was cut.

pub mod query_tile;

pub mod attend;
pub mod online_softmax;
mod parts;
pub mod scores;
mod tiles;
mod values;
mod walk;

mod element;
pub mod kv_rows;

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Reach, Sizes};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::AttentionParams;
use llmrt_plugin::{DType, NodeView, Reason};
pub use parts::shared_bytes;
use parts::{Part, Parts};
use query_tile::QueryTile;
use tiles::{Piece, Tiles};

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
    if let Some(biases) = check::optional_floats(node, 7)? {
        let [n, ..] = biases.ne();
        ensure(!n.is_multiple_of(2) && biases.ne() == [n, n_heads, 1, 1], Reason::Shape)?;
    }
    check::result(node, DType::F32, [v[0] / n_kv_heads * n_heads, n_tokens, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(AttentionParams::from_bytes);
    let (q, k, v) = (a.arg(0), a.arg(1), a.arg(2));
    let n_tokens = q.ne[2];
    let sizes = Sizes { block_size: p.block_size, n_slots: k.ne[1], n_tokens };
    let reach = Reach { window: p.window, chunk: p.chunk, bidirectional: p.bidirectional != 0 };
    let mut starts = std::mem::take(&mut w.scratch.starts);
    let paging = Paging::new(a, 3, sizes, reach, &mut starts);
    zero_unused(w, &out, &paging);

    let parts = Parts::of(a, w.shared);
    let tiles = Tiles::new(w.rank.n, &paging, q.ne[1], p.n_kv_heads as usize, parts.is_some());
    let parts = parts.filter(|_| tiles.by_depth);
    while let Some(Piece { seq, kv_head, heads, tokens, split, positions }) =
        tiles.piece(&paging, out.take_in_order())
    {
        let tile = QueryTile {
            isa: w.isa,
            p: &p,
            paging,
            q,
            k,
            v,
            y: &a.dst,
            sinks: a.src[6].as_ref().map(|t| t.row([0; 3])),
            biases: a.src[7].as_ref(),
            seq,
            kv_head,
            heads,
            tokens,
            positions,
            chosen: None,
        };
        attend::attend(&tile, parts.as_ref().map(|parts| Part { parts, split }), w.scratch);
    }
    if let Some(parts) = parts {
        (w.barrier)();
        for seq in 0..paging.lens.len() {
            // SAFETY: all members are past the barrier, and each has stored what it took.
            unsafe { parts.merge(w, a, paging.queries(seq), tiles::splits(&paging, seq).len()) };
        }
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
