//! y[i, j] = Σₖ w[i, k] · h[k, j], over the k where h[k, j] is not 0 and its score passes.
//!
//! A unit of work is a piece of some rows of y. Row k of w is read once for all of them, unless none has a use for it. Sums
//! are in the order of k.

use super::add_rows::{AT_ONCE, add_rows, step_bytes};
use super::check::{self, Answer, ensure};
use super::out_prod::add_scaled;
use super::pick::{self, Kept, Pick};
use super::{Args, Output, Worker, rows};
use crate::simd::{Isa, prefetch_bytes};
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
/// The same, of groups of rows that are added together.
const GROUPS_AHEAD: usize = 3;

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
    let size = (weights.ne[0] / w.rank.n).next_multiple_of(BLOCK).clamp(BLOCK, PIECE);
    let (mut used, mut used_by) = (Kept::default(), 0..0);
    for mut y in out.take_tiles([size, ROWS, 1, 1], 0) {
        let [elems, columns, ..] = y.dims();
        columns.clone().for_each(|j| y.row([j, 0, 0]).fill(0.0));
        if used_by != columns {
            factors.used(weights.ne[1], columns.clone(), &mut used);
            used_by = columns.clone();
        }
        let piece = Piece::new(weights, &elems);
        let n_together = match columns.len() == 1 && is_added_undecoded(weights, &elems) {
            true => used.rows.len() / AT_ONCE * AT_ONCE,
            false => 0,
        };
        let of_column = [columns.start, 0, 0];
        let (h, sums) = (factors.h.row(of_column), y.row(of_column));
        add_together(w.isa, &piece, &used.rows, n_together, h, sums);
        for (i, &k) in used.rows.iter().enumerate().skip(n_together) {
            if let Some(&next) = used.rows.get(i + AHEAD) {
                piece.prefetch(next);
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

/// Whether rows are added without being decoded to memory first.
fn is_added_undecoded(w: &Tensor, elems: &Range<usize>) -> bool {
    let is_whole = elems.start.is_multiple_of(rows::STEP) && elems.len().is_multiple_of(rows::STEP);
    is_whole && w.has_dense_rows() && step_bytes(w.dtype).is_some()
}

/// Adds the first `n` of the rows that are used, times their elements of `h`, to `y`.
fn add_together(isa: Isa, piece: &Piece<'_>, used: &[usize], n: usize, h: &[f32], y: &mut [f32]) {
    let (n_steps, step) = (y.len() / rows::STEP, step_bytes(piece.w.dtype).unwrap_or(0));
    for (i, group) in used[..n].as_chunks::<AT_ONCE>().0.iter().enumerate() {
        let next = used.get((i + GROUPS_AHEAD) * AT_ONCE..).unwrap_or_default();
        let (bytes, factors) = (group.map(|k| piece.of_row(k)), group.map(|k| h[k]));
        // As many parts as rows that are prefetched: the machine keeps few requests in flight.
        for part in 0..AT_ONCE {
            if let Some(&k) = next.get(part) {
                piece.prefetch(k);
            }
            let [start, end] = [part, part + 1].map(|part| n_steps * part / AT_ONCE);
            let bytes = bytes.map(|bytes| &bytes[start * step..end * step]);
            add_rows(isa, piece.w.dtype, bytes, factors, &mut y[start * rows::STEP..end * rows::STEP]);
        }
    }
}

/// The same elements of each row.
struct Piece<'a> {
    w: &'a Tensor,
    /// Their bytes in a row.
    bytes: Range<usize>,
}

impl<'a> Piece<'a> {
    /// Whole blocks, as all pieces are.
    fn new(w: &'a Tensor, elems: &Range<usize>) -> Piece<'a> {
        Piece { w, bytes: w.bytes_of(elems) }
    }

    #[inline(always)]
    fn of_row(&self, k: usize) -> &'a [u8] {
        &self.w.bytes()[self.w.offset_of([k, 0, 0])..][self.bytes.clone()]
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        prefetch_bytes(self.of_row(k));
    }
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
        used.rows.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of any number of steps, so that parts are empty or of unequal size, and groups with and without a next one.
    #[test]
    fn rows_added_together_have_the_bits_of_one_after_the_other() {
        const N_ROWS: usize = 24;
        let dtypes = [DType::F16, DType::Q8_0, DType::Q4_0];
        for (isa, dtype) in Isa::available().into_iter().flat_map(|isa| dtypes.map(|dtype| (isa, dtype))) {
            for n_steps in [1, 2, 3, 5, 7, 16] {
                let n = n_steps * rows::STEP;
                let mut bytes = bytes(dtype, N_ROWS * n);
                // SAFETY: the bytes are used as long as the tensor is.
                let w = unsafe { Tensor::of_bytes(&mut bytes, dtype, [n, N_ROWS, 1, 1]) };
                let h: Vec<f32> = (0..N_ROWS).map(|k| (k as f32 - 7.0) / 9.0).collect();
                for n_used in [0, 3, 4, 13, 20] {
                    let used: Vec<usize> = (0..N_ROWS).filter(|k| k % 6 != 1).take(n_used).collect();
                    let n_together = used.len() / AT_ONCE * AT_ONCE;
                    let (mut found, mut expected) = (vec![0.5; n], vec![0.5; n]);
                    add_together(isa, &Piece::new(&w, &(0..n)), &used, n_together, &h, &mut found);
                    for &k in &used[..n_together] {
                        let mut room = vec![0.0; n];
                        let row = rows::read(isa, &w, [k, 0, 0], 0..n, &mut room);
                        add_scaled(isa, &mut expected, row, h[k]);
                    }
                    assert_eq!(found, expected, "{isa:?} {dtype}: {n_steps} steps, {n_used} rows");
                }
            }
        }
    }

    /// Rows of numbers that are not all the same.
    fn bytes(dtype: DType, n: usize) -> Vec<u8> {
        let numbers: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
        let mut bytes = vec![0; n / dtype.block_elems() * dtype.block_bytes()];
        rows::encode(Isa::SCALAR, dtype, &numbers, &mut bytes);
        bytes
    }
}
