//! y[i, j] = Σₖ w[k, i] · x[k, j]; matrix b of x uses matrix b / (n_x / n_w) of w in dims 2 and 3.
//!
//! Float weights are multiplied with packed f32 activations, quantised ones with activations quantised to 8 bits. Rows of w are handed out to the threads;
//! each thread makes all columns of its rows.

use super::check::{self, Answer, ensure};
use super::product_floats::Words;
use super::{Args, Column, Output, Worker, prepare, product};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (w, x) = (check::matrix(node, 0)?.ne(), check::numbers(node, 1)?.ne());
    ensure(w[0] == x[0] && x[2].is_multiple_of(w[2]) && x[3].is_multiple_of(w[3]), Reason::Shape)?;
    check::result(node, DType::F32, [w[1], x[1], x[2], x[3]])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (weights, x) = (a.arg(0), a.arg(1));
    if weights.ne[0] == 0 {
        return zeros(out);
    }
    let (mut own, mut own_packed) = (std::mem::take(&mut w.scratch.x), std::mem::take(&mut w.scratch.packed));
    let mut room = std::mem::take(&mut w.scratch.rows);
    let quantised = prepare::quantise(w, weights, x, &mut own, &mut room);
    let packed = prepare::pack(w, weights, x, &mut own_packed, &mut room);
    w.scratch.rows = room;
    let mut columns = std::mem::take(&mut w.scratch.columns);

    let words = Words::of(weights.dtype);
    let [_, _, n2, n3] = weights.ne;
    let (r2, r3) = (x.ne[2] / n2, x.ne[3] / n3);
    let pieces = product::Pieces::of(weights, w.rank.n, x.ne[1] * r2 * r3);
    let mut current = None;
    for mut y in out.take_tiles([pieces.rows(), x.ne[1], r2, r3], 0) {
        let [_, _, dim2, dim3] = y.dims();
        let at = [dim2.start / r2, dim3.start / r3];
        let matrix = at[0] + at[1] * n2;
        if current.replace(matrix) != Some(matrix) {
            columns.clear();
            columns.extend(columns_of(weights, x, matrix));
        }
        let packed = match packed {
            [] => words.ready(x, &columns).unwrap_or(&[]),
            all => {
                let n = words.packed(x.ne[0], columns.len());
                &all[matrix * n..][..n]
            }
        };
        let product = product::Product { w: weights, at, picked: None, quantised, packed, columns: &columns };
        product::compute(w.isa, &product, &mut y, w.scratch);
    }
    w.scratch.columns = columns;
    (w.scratch.x, w.scratch.packed) = (own, own_packed);
}

/// Addresses of the weights in the share of thread `index` of `n_threads`.
pub fn weights_of(a: &Args, index: usize, n_threads: usize) -> Range<usize> {
    let (w, x) = (a.arg(0), a.arg(1));
    let n_matrices = w.ne[2] * w.ne[3];
    let n_columns = x.ne[1] * x.ne[2] * x.ne[3] / n_matrices.max(1);
    if w.columns.is_some() {
        return 0..0;
    }
    let pieces = product::Pieces::of(w, n_threads, n_columns);
    let Some([(first, from), (last, to)]) = pieces.ends(index, n_threads) else { return 0..0 };
    let offset = |matrix: usize, row: usize| w.offset_of([row, matrix % w.ne[2], matrix / w.ne[2]]);
    let span = w.span();
    span.start + offset(first, from.start)..span.end.min(span.start + offset(last, to.end))
}

/// The rows of x that a matrix is multiplied with, in order.
pub fn columns_of(weights: &Tensor, x: &Tensor, matrix: usize) -> impl Iterator<Item = Column> {
    let (n, n2) = (x.ne[1], x.ne[2]);
    let (r2, r3) = (n2 / weights.ne[2], x.ne[3] / weights.ne[3]);
    let (first2, first3) = (matrix % weights.ne[2] * r2, matrix / weights.ne[2] * r3);
    let rows = (0..r3).flat_map(move |i3| (0..r2).map(move |i2| ((first3 + i3) * n2 + first2 + i2) * n));
    rows.flat_map(move |first| first..first + n).map(|row| Column { x: row, y: row })
}

/// This thread's rows of zeros: sums over rows without elements.
pub fn zeros(out: Output<'_>) {
    out.rows().for_each(|(_, y)| y.floats().fill(0.0));
}
