//! Few tokens of long sequences, cut by depth: the KV splits of a row are computed by any member of the team, each into its
//! place in the team's memory, and then merged in order, as one member alone would have.

use super::online_softmax::{self as softmax, NOTHING, Total};
use super::walk::SPLIT;
use crate::ops::{Args, Worker};
use crate::scratch::Shared;
use crate::simd::{LANES, Simd, dispatch};
use llmrt_plugin::abi::op::AttentionParams;
use std::ops::Range;

/// Tokens of a step up to which sequences may be cut by depth.
const MAX_TOKENS: usize = 8;
/// Bytes of the team's memory up to which they are.
const MAX_BYTES: usize = 16 << 20;

/// Where the splits of all rows are in the team's memory: [row][split][total, then weighted values].
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    shared: &'a Shared,
    layout: Layout,
}

#[derive(Clone, Copy)]
struct Layout {
    n_rows: usize,
    n_heads: usize,
    /// Splits of the longest sequence that the block table has room for.
    n_splits: usize,
    /// Floats of a split.
    len: usize,
}

/// One split of all rows.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub parts: &'a Parts<'a>,
    /// Which, from the first one that a query of the sequence sees.
    pub split: usize,
}

dispatch! {
    fn merge_row(parts: &[f32], len: usize, sink: Option<f32>, merged: &mut [f32], y: &mut [f32]) = merge_row_with;
}

/// Bytes of the team's memory that a node's splits take; 0 if it is not cut by depth.
pub fn shared_bytes(a: &Args) -> usize {
    Layout::of(a).map_or(0, |layout| layout.n_bytes())
}

impl Layout {
    /// None for nodes that are not cut by depth.
    fn of(a: &Args) -> Option<Layout> {
        let [_, n_heads, n_tokens, _] = a.arg(0).ne;
        let n_keys = a.arg(3).ne[0].saturating_mul(a.params(AttentionParams::from_bytes).block_size as usize);
        let dim_v = a.dst.ne[0] / n_heads.max(1);
        let n_splits = n_keys.div_ceil(SPLIT);
        let len = LANES + dim_v.next_multiple_of(LANES);
        let layout = Layout { n_rows: n_tokens.saturating_mul(n_heads), n_heads, n_splits, len };
        let few = a.dst.n_elems() > 0 && n_tokens <= MAX_TOKENS;
        (few && n_splits > 1 && layout.n_bytes() <= MAX_BYTES).then_some(layout)
    }

    fn n_bytes(&self) -> usize {
        let each = self.len.saturating_mul(size_of::<f32>());
        self.n_rows.saturating_mul(self.n_splits).saturating_mul(each)
    }
}

impl<'a> Parts<'a> {
    /// The place that `shared_bytes` reserved for the node, if it did.
    pub fn of(a: &Args, shared: &'a Shared) -> Option<Parts<'a>> {
        Layout::of(a).map(|layout| Parts { shared, layout })
    }

    /// Floats of splits of a row.
    fn range(&self, [token, head]: [usize; 2], splits: Range<usize>) -> Range<usize> {
        let Layout { n_heads, n_splits, len, .. } = self.layout;
        let row = (token * n_heads + head) * n_splits;
        (row + splits.start) * len..(row + splits.end) * len
    }

    /// Merges the first `n_splits` splits of the tokens of a sequence, this member's share of the rows, and writes them.
    ///
    /// # Safety
    /// All members stored the splits, and a barrier followed.
    pub unsafe fn merge(&self, w: &mut Worker<'_>, a: &Args, tokens: Range<usize>, n_splits: usize) {
        let Layout { n_rows, n_heads, len, .. } = self.layout;
        let dim = a.dst.ne[0] / n_heads;
        let sinks = a.src[6].as_ref().map(|t| t.row([0; 3]));
        let merged = w.scratch.floats[0].take(len - LANES);
        for i in w.rank.share(tokens.len() * n_heads) {
            let (token, head) = (tokens.start + i / n_heads, i % n_heads);
            let range = self.range([token, head], 0..n_splits);
            // SAFETY: the caller's promise; who writes here next waits for this node to end (`shared_bytes`).
            let parts = &unsafe { self.shared.get(n_rows * self.layout.n_splits * len) }[range];
            // SAFETY: rows are shared out, and no tile of a node that is cut by depth writes to the result.
            let y = unsafe { a.dst.part_mut([token, 0, 0], head * dim..(head + 1) * dim) };
            merge_row(w.isa, parts, len, sinks.map(|sinks| sinks[head]), merged, y);
        }
    }
}

impl Part<'_> {
    /// Stores the total and the weighted values of a row.
    ///
    /// # Safety
    /// No other member stores this split of the row, and it is read after a barrier.
    pub unsafe fn store(&self, row: [usize; 2], total: Total, values: &[f32]) {
        let range = self.parts.range(row, self.split..self.split + 1);
        // SAFETY: the caller's promise.
        let to = unsafe { self.parts.shared.part_mut::<f32>(range) };
        to[..2].copy_from_slice(&total);
        to[LANES..].copy_from_slice(values);
    }
}

#[inline(always)]
fn merge_row_with<S: Simd>(
    s: S,
    parts: &[f32],
    len: usize,
    sink: Option<f32>,
    merged: &mut [f32],
    y: &mut [f32],
) {
    let mut total = NOTHING;
    for part in parts.chunks_exact(len) {
        softmax::merge(s, [part[0], part[1]], &part[LANES..], &mut total, merged);
    }
    softmax::normalise(s, total, sink, merged, y);
}
