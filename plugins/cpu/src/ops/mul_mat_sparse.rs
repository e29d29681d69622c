//! y[i, j] = Σₖ w[k, i] · x[k, j] where score[i, j] passes, else 0.
//!
//! A unit of work is a stretch of rows with all columns. Of it, rows that pass in any column are multiplied by the code that
//! multiplies all of them where they are most: so bits are those of `mul_mat`. Quantised rows are read where they are, for each
//! column alone if it has few; others are put side by side in working memory first.

mod parts;

use super::check::{self, Answer, ensure};
use super::output::Tile;
use super::pick::{self, Pick};
use super::product_floats::Words;
use super::worker::{Rank, Taken};
use super::{Args, Column, Output, Worker, mul_mat, prepare, product};
use crate::quant::{self, ROWS};
use crate::scratch::{Arena, Scratch};
use crate::simd::{Isa, prefetch_bytes};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};
use parts::{Parts, Picked, Way};
use std::ops::Range;

/// Rows of a unit: of a tenth of them, few places of the last panel are empty.
const UNIT: usize = 1024;
/// Rows of floats that are put side by side at a time: they stay in the second cache.
const GATHERED: usize = 4 * ROWS;
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
    let picked = Picked { scores, pick: Pick::of(a) };
    let is_quantised = quant::is_supported(weights.dtype);
    let unit = (weights.ne[1] / (w.rank.n * 4)).next_multiple_of(2 * ROWS).clamp(2 * ROWS, UNIT);
    // The rows of the next tile are found before one is computed, so that the first ones are prefetched meanwhile.
    let (mut parts, mut next_parts) = (Parts::default(), Parts::default());
    for (mut y, next) in out.take_tiles_ahead([unit, x.ne[1], 1, 1], 0) {
        std::mem::swap(&mut parts, &mut next_parts);
        let [of_y, ..] = y.dims();
        let of_next = next.map_or(0..0, |[rows, ..]| rows);
        for (parts, rows) in [(&mut parts, of_y), (&mut next_parts, of_next)] {
            parts.find(&picked, rows, columns.len(), is_quantised);
        }
        let then = next_parts.rows(0);
        match parts.way {
            Way::All => {
                product::compute(w.isa, &product, &mut y, w.scratch);
                clear_others(&picked, &mut y);
            }
            Way::Together => {
                let rows = [parts.rows(0), then];
                few_rows(w.isa, &product, 0..columns.len(), rows, &picked, &mut y, w.scratch);
            }
            Way::Alone => {
                for j in 0..columns.len() {
                    let then = if j + 1 < columns.len() { parts.rows(j + 1) } else { then };
                    few_rows(w.isa, &product, j..j + 1, [parts.rows(j), then], &picked, &mut y, w.scratch);
                }
            }
        }
    }
    w.scratch.columns = columns;
    (w.scratch.x, w.scratch.packed) = (own, own_packed);
}

/// Zeros where scores do not pass.
fn clear_others(picked: &Picked<'_>, y: &mut Tile<'_>) {
    let [rows, columns, ..] = y.dims();
    for j in columns {
        for (y, score) in y.row([j, 0, 0]).iter_mut().zip(picked.of(j, rows.clone())) {
            *y = picked.pick.keep(*score, *y);
        }
    }
}

/// Computes what passes in these rows of some columns of a tile, all or one; all else of these columns becomes zeros. The
/// second rows are the next ones.
fn few_rows(
    isa: Isa,
    p: &product::Product<'_>,
    columns: Range<usize>,
    [rows, then]: [&[usize]; 2],
    picked: &Picked<'_>,
    y: &mut Tile<'_>,
    scratch: &mut Scratch,
) {
    let Some(first) = p.columns.get(columns.start) else { return };
    columns.clone().for_each(|j| y.row([j, 0, 0]).fill(0.0));
    let one = [Column { y: 0, ..*first }];
    let p = &product::Product { columns: if columns.len() == 1 { &one } else { p.columns }, ..*p };
    let [mut room, mut sums] = std::mem::take(&mut scratch.gathered);
    let is_quantised = quant::is_supported(p.w.dtype);
    let at_once = if is_quantised { UNIT } else { GATHERED };
    for (i, some) in rows.chunks(at_once).enumerate() {
        let n = some.len().next_multiple_of(ROWS);
        let sums = sums.take::<f32>(n * columns.len());
        let next = rows.get((i + 1) * at_once..).filter(|next| !next.is_empty()).unwrap_or(then);
        if is_quantised {
            // The last one stands in for those up to a whole panel; the next ones are prefetched alone.
            let next = &next[..next.len().min(ROWS)];
            let padded = room.take::<usize>(n + next.len());
            padded[..n].fill(some[some.len() - 1]);
            padded[..some.len()].copy_from_slice(some);
            padded[n..].copy_from_slice(next);
            multiply(isa, &product::Product { picked: Some(padded), ..*p }, n, sums, scratch);
        } else {
            let w = gather(p.w, some, next, &mut room);
            multiply(isa, &product::Product { w: &w, ..*p }, n, sums, scratch);
        }
        let [in_y, ..] = y.dims();
        for (j, sums) in columns.clone().zip(sums.chunks_exact(n)) {
            let (y, scores) = (y.row([j, 0, 0]), picked.of(j, in_y.clone()));
            for (row, sum) in some.iter().map(|row| row - in_y.start).zip(sums) {
                y[row] = picked.pick.keep(scores[row], *sum);
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
            prefetch_bytes(w.row_bytes([*row, 0, 0]));
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
