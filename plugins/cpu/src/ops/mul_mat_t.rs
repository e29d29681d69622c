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

/// Rows of y in a unit.
const ROWS: usize = 8;
/// Elements of these rows in a unit at most, and at least: whole blocks of every dtype.
const PIECE: usize = 1024;
const BLOCK: usize = 256;
/// Rows of w from one that is read to the one that is prefetched.
const AHEAD: usize = 2;

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
        let of_all = (0..weights.ne[1]).map(|k| (k, factors.of(k, columns.clone())));
        used.clear();
        used.extend(of_all.filter(|(_, factors)| factors.iter().any(|factor| *factor != 0.0)));
        for (i, (k, factors)) in used.iter().enumerate() {
            if let Some((next, _)) = used.get(i + AHEAD) {
                prefetch_row(weights, *next, elems.clone());
            }
            let room = w.scratch.rows.take(elems.len());
            let row = rows::read(w.isa, weights, [*k, 0, 0], elems.clone(), room);
            for (j, factor) in columns.clone().zip(factors).filter(|(_, factor)| **factor != 0.0) {
                add_scaled(w.isa, y.row([j, 0, 0]), row, *factor);
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
    /// Those of row `k` in these columns, followed by zeros.
    fn of(&self, k: usize, columns: Range<usize>) -> [f32; ROWS] {
        let mut all = [0.0; ROWS];
        for (to, j) in all.iter_mut().zip(columns) {
            let passes = self.scores.is_none_or(|scores| self.pick.passes(scores.row([j, 0, 0])[k]));
            *to = if passes { self.h.row([j, 0, 0])[k] } else { 0.0 };
        }
        all
    }
}
