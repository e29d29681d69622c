//! y[i, j] = Σₖ w[i, k] · h[k, j], over the k where h[k, j] is not 0 and its score passes.
//!
//! A unit of work is a piece of some rows of y. Row k of w is read once for all of them, unless none has a use for it. Sums
//! are in the order of k.

use super::check::{self, Answer, ensure};
use super::out_prod::add_scaled;
use super::pick::{self, Kept, Pick};
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
    let mut used = Kept::default();
    for mut y in out.take_tiles([piece, ROWS, 1, 1], 0) {
        let [elems, columns, ..] = y.dims();
        columns.clone().for_each(|j| y.row([j, 0, 0]).fill(0.0));
        factors.used(weights.ne[1], columns.clone(), &mut used);
        for (i, &k) in used.rows.iter().enumerate() {
            if let Some(&next) = used.rows.get(i + AHEAD) {
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

    /// The rows, of `n`, whose factor is not 0 in any of these columns.
    fn used(&self, n: usize, columns: Range<usize>, used: &mut Kept) {
        used.find(0..n, columns, usize::MAX, |column, marks| {
            let h = &self.h.row([column, 0, 0])[..n];
            match self.scores {
                None => marks.iter_mut().zip(h).for_each(|(mark, h)| *mark |= u8::from(*h != 0.0)),
                Some(scores) => {
                    let of_both = marks.iter_mut().zip(h).zip(scores.row([column, 0, 0]));
                    of_both.for_each(|((mark, h), score)| {
                        *mark |= u8::from((*h != 0.0) & self.pick.passes(*score));
                    });
                }
            }
        });
    }
}
