//! y[i, j] = Σₖ w[k, i] · x[k, j] where score[i, j] passes, else 0.
//!
//! A unit of work is a stretch of rows with all columns. Of it, rows that pass in any column are multiplied by the code that
//! multiplies all of them where they are most: so bits are those of `mul_mat`. Quantised rows are read where they are, for each
//! column alone if it has few; others are put side by side in working memory first.

use super::check::{self, Answer, ensure};
use super::output::Tile;
use super::pick::{self, Kept, Pick};
use super::product_floats::Words;
use super::worker::{Rank, Taken};
use super::{Args, Column, Output, Worker, mul_mat, prepare, product};
use crate::quant::{self, ROWS};
use crate::scratch::{Arena, Scratch};
use crate::simd::{Isa, prefetch_all};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

/// Rows of a unit: of a tenth of them, few places of the last panel are empty.
const UNIT: usize = 1024;
/// Rows of floats that are put side by side at a time: they stay in the second cache.
const GATHERED: usize = 4 * ROWS;
/// Columns that are multiplied with a quantised row in the time in which it is unpacked, about.
const UNPACKING: usize = 5;
/// Rows from one that is read to the one that is prefetched.
const AHEAD: usize = 6;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let w = check::decodable(node, 0)?;
    let (w, x, scores) = (w.ne(), check::numbers(node, 1)?.ne(), check::floats(node, 2)?.ne());
    pick::supports(node)?;
    let ne = [w[1], x[1], 1, 1];
    ensure(w[2..] == [1, 1] && x[0] == w[0] && x[2..] == [1, 1] && scores == ne, Reason::Shape)?;
    check::result(node, DType::F32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (weights, x, scores) = (a.arg(0), a.arg(1), a.arg(2));
    if weights.ne[0] == 0 {
        return mul_mat::zeros(out);
    }
    let (mut own, mut own_packed) = (std::mem::take(&mut w.scratch.x), std::mem::take(&mut w.scratch.packed));
    let mut room = std::mem::take(&mut w.scratch.rows);
    let quantised = prepare::quantise(w, weights, x, &mut own, &mut room);
    let packed = prepare::pack(w, weights, x, &mut own_packed, &mut room);
    w.scratch.rows = room;
    let mut columns = std::mem::take(&mut w.scratch.columns);
    columns.clear();
    columns.extend(mul_mat::columns_of(weights, x, 0));
    let packed = match packed {
        [] => Words::of(weights.dtype).ready(x, &columns).unwrap_or(&[]),
        packed => packed,
    };

    let product =
        product::Product { w: weights, at: [0, 0], picked: None, quantised, packed, columns: &columns };
    let unit = (weights.ne[1] / (w.rank.n * 4)).next_multiple_of(2 * ROWS).clamp(2 * ROWS, UNIT);
    let mut kept = Kept::default();
    for mut y in out.take_tiles([unit, x.ne[1], 1, 1], 0) {
        let picked = Picked { scores, pick: Pick::of(a), first: 0 };
        let n = y.dims()[0].len();
        let too_many = too_many_of(n);
        picked.rows_of(&y, 0..columns.len(), too_many, &mut kept);
        let n_kept = if kept.rows.len() < too_many { kept.rows.len() } else { n };
        if columns.len() > 1
            && quant::is_supported(weights.dtype)
            && picked.count(&y) * (UNPACKING + 1) < n_kept * (UNPACKING + columns.len())
        {
            for j in 0..columns.len() {
                picked.rows_of(&y, j..j + 1, usize::MAX, &mut kept);
                let one = [Column { x: columns[j].x, y: 0 }];
                let product = product::Product { columns: &one, ..product };
                few_rows(w.isa, &product, &kept.rows, picked.starting_at(j), &mut y, w.scratch);
            }
        } else if n_kept < n {
            few_rows(w.isa, &product, &kept.rows, picked, &mut y, w.scratch);
        } else {
            product::compute(w.isa, &product, &mut y, w.scratch);
            picked.clear_others(&mut y);
        }
    }
    w.scratch.columns = columns;
    (w.scratch.x, w.scratch.packed) = (own, own_packed);
}

/// How many of `n` rows take as long alone as all of them in place.
fn too_many_of(n: usize) -> usize {
    (n * 7).div_ceil(10)
}

/// Scores and their rule.
#[derive(Clone, Copy)]
struct Picked<'a> {
    scores: &'a Tensor,
    pick: Pick,
    /// The first column of the scores that counts, and of the result.
    first: usize,
}

impl Picked<'_> {
    /// The rows of a tile that pass in any of these columns; if they are `too_many`, perhaps not all of them.
    fn rows_of(self, y: &Tile<'_>, columns: Range<usize>, too_many: usize, kept: &mut Kept) {
        let [rows, ..] = y.dims();
        kept.find(rows.clone(), columns, too_many, |column, marks| {
            self.pick.mark(&self.scores.row([column, 0, 0])[rows.clone()], marks);
        });
    }

    /// The columns from `first` on.
    fn starting_at(self, first: usize) -> Self {
        Picked { first, ..self }
    }

    /// How many elements of a tile pass.
    fn count(self, y: &Tile<'_>) -> usize {
        let [rows, columns, ..] = y.dims();
        let of_column = |j: usize| {
            let scores = &self.scores.row([j, 0, 0])[rows.clone()];
            scores.iter().map(|score| u32::from(self.pick.passes(*score))).sum::<u32>() as usize
        };
        columns.map(of_column).sum()
    }

    /// Zeros where scores do not pass.
    fn clear_others(self, y: &mut Tile<'_>) {
        let [rows, columns, ..] = y.dims();
        for j in columns {
            let scores = &self.scores.row([j, 0, 0])[rows.clone()];
            for (y, score) in y.row([j, 0, 0]).iter_mut().zip(scores) {
                *y = if self.pick.passes(*score) { *y } else { 0.0 };
            }
        }
    }
}

/// Computes what passes in these rows of a tile; all else becomes zeros.
fn few_rows(
    isa: Isa,
    p: &product::Product<'_>,
    rows: &[usize],
    picked: Picked<'_>,
    y: &mut Tile<'_>,
    scratch: &mut Scratch,
) {
    let n_columns = p.columns.len();
    p.columns.iter().for_each(|column| y.row([picked.first + column.y, 0, 0]).fill(0.0));
    let [mut room, mut sums] = std::mem::take(&mut scratch.gathered);
    let is_quantised = quant::is_supported(p.w.dtype);
    let at_once = if is_quantised { UNIT } else { GATHERED };
    for (i, some) in rows.chunks(at_once).enumerate() {
        let n = some.len().next_multiple_of(ROWS);
        let sums = sums.take::<f32>(n * n_columns);
        if is_quantised {
            // The last one stands in for those up to a whole panel.
            let padded = room.take::<usize>(n);
            padded.fill(some[some.len() - 1]);
            padded[..some.len()].copy_from_slice(some);
            multiply(isa, &product::Product { picked: Some(padded), ..*p }, n, sums, scratch);
        } else {
            let next = rows.get((i + 1) * GATHERED..).unwrap_or(&[]);
            let w = gather(p.w, some, next, &mut room);
            multiply(isa, &product::Product { w: &w, ..*p }, n, sums, scratch);
        }
        for (column, sums) in p.columns.iter().zip(sums.chunks_exact(n)) {
            let [in_y, ..] = y.dims();
            let at = [picked.first + column.y, 0, 0];
            let (y, scores) = (y.row(at), picked.scores.row(at));
            for (&row, sum) in some.iter().zip(sums) {
                y[row - in_y.start] = if picked.pick.passes(scores[row]) { *sum } else { 0.0 };
            }
        }
    }
    scratch.gathered = [room, sums];
}

/// The rows of `w` one after the other, and zeros up to a whole panel; those of `next` follow soon.
fn gather(w: &Tensor, rows: &[usize], next: &[usize], room: &mut Arena) -> Tensor {
    let n = w.row_bytes([rows[0], 0, 0]).len();
    let n_rows = rows.len().next_multiple_of(ROWS);
    let bytes = room.take::<u8>(n * n_rows);
    bytes[n * rows.len()..].fill(0);
    for (i, (row, to)) in rows.iter().zip(bytes.chunks_exact_mut(n)).enumerate() {
        if let Some(row) = rows.get(i + AHEAD).or_else(|| next.get(i + AHEAD - rows.len())) {
            let at = w.row_bytes([*row, 0, 0]).as_ptr().addr();
            prefetch_all(at..at + n);
        }
        to.copy_from_slice(w.row_bytes([*row, 0, 0]));
    }
    // SAFETY: the bytes are the arena's, which is not used again before the product has ended.
    unsafe { Tensor::of_bytes(bytes, w.dtype, [w.ne[0], n_rows, 1, 1]) }
}

/// `n` rows of the weights times all columns, [rows, columns].
fn multiply(isa: Isa, p: &product::Product<'_>, n: usize, sums: &mut [f32], scratch: &mut Scratch) {
    let columns: &[Column] = p.columns;
    let ne = [n, columns.len(), 1, 1];
    // SAFETY: the slice outlives the tensor, and nothing else writes it meanwhile.
    let y = unsafe { Tensor::of_bytes(bytemuck::cast_slice_mut(sums), DType::F32, ne) };
    let taken = [Taken::default()];
    // SAFETY: the result is gapless F32, and this thread is the team.
    let out = unsafe { Output::new(&y, Rank::new(0, 1), &taken, None) };
    out.tiles(ne).for_each(|mut tile| product::compute(isa, p, &mut tile, scratch));
}
