//! y[i, j] = Σₖ w[i, k] · h[k, j], over the k where h[k, j] is not 0 and its score passes.
//!
//! A unit of work is a piece of some rows of y. Row k of w is read once for all of them, unless none has a use for it. Sums
//! are in the order of k.

use super::check::{self, Answer, ensure};
use super::out_prod::add_scaled;
use super::pick::{self, Pick};
use super::{Args, Output, Worker, rows};
use crate::simd::prefetch;
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

/// Rows of y in a unit: a row of w is read once for them.
const ROWS: usize = 32;
/// Elements of these rows in a unit at most, and at least: whole blocks of every dtype.
const PIECE: usize = 1024;
const BLOCK: usize = 256;
/// Rows of w from one that is read to the one that is prefetched.
const AHEAD: usize = 4;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (w, h) = (check::decodable(node, 0)?.ne(), check::floats(node, 1)?.ne());
    pick::supports(node)?;
    let scores = check::optional_floats(node, 2)?.map_or(h, |scores| scores.ne());
    ensure(w[2..] == [1, 1] && h[0] == w[1] && h[2..] == [1, 1] && scores == h, Reason::Shape)?;
    check::result(node, DType::F32, [w[0], h[1], 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let weights = a.arg(0);
    let factors = Factors { h: a.arg(1), scores: a.src[2].as_ref(), pick: Pick::of(a) };
    let piece = (weights.ne[0] / w.rank.n).next_multiple_of(BLOCK).clamp(BLOCK, PIECE);
    let mut used = Vec::new();
    for mut y in out.take_tiles([piece, ROWS, 1, 1], 0) {
        let [elems, columns, ..] = y.dims();
        columns.clone().for_each(|j| y.row([j, 0, 0]).fill(0.0));
        factors.used(weights.ne[1], columns.clone(), &mut used);
        for (i, &k) in used.iter().enumerate() {
            if let Some(&next) = used.get(i + AHEAD) {
                prefetch_row(weights, next, elems.clone());
            }
            let room = w.scratch.rows.take(elems.len());
            let row = rows::read(w.isa, weights, [k, 0, 0], elems.clone(), room);
            for j in columns.clone() {
                let factor = factors.of(k, j);
                if factor != 0.0 {
                    add_scaled(w.isa, y.row([j, 0, 0]), row, factor);
                }
            }
        }
    }
}

/// Prefetches elements of row `k`.
fn prefetch_row(w: &Tensor, k: usize, elems: Range<usize>) {
    let (block, size) = (w.dtype.block_elems(), w.dtype.block_bytes());
    let start = w.row_bytes([k, 0, 0]).as_ptr().wrapping_add(elems.start / block * size);
    (0..elems.len() / block * size).step_by(64).for_each(|line| prefetch(start.wrapping_add(line)));
}

/// What rows of w are multiplied with.
struct Factors<'a> {
    h: &'a Tensor,
    scores: Option<&'a Tensor>,
    pick: Pick,
}

impl Factors<'_> {
    /// That of row `k` in a column.
    fn of(&self, k: usize, j: usize) -> f32 {
        let passes = self.scores.is_none_or(|scores| self.pick.passes(scores.row([j, 0, 0])[k]));
        if passes { self.h.row([j, 0, 0])[k] } else { 0.0 }
    }

    /// The rows, of `n`, whose factor is not 0 in any of these columns, in order.
    fn used(&self, n: usize, columns: Range<usize>, used: &mut Vec<usize>) {
        used.clear();
        if columns.len() > 1 {
            used.extend((0..n).filter(|&k| columns.clone().any(|j| self.of(k, j) != 0.0)));
            return;
        }
        let h = &self.h.row([columns.start, 0, 0])[..n];
        let scores = self.scores.map(|scores| &scores.row([columns.start, 0, 0])[..n]);
        pick::kept(0..n, used, |k| scores.is_none_or(|scores| self.pick.passes(scores[k])) & (h[k] != 0.0));
    }
}
