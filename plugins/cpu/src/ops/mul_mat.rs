//! y[i, j] = Σₖ w[k, i] · x[k, j]; matrix b of x uses matrix b / (n_x / n_w) of w in dims 2 and 3.
//!
//! Float weights meet x as it is; quantised ones meet x quantised to 8 bits. Rows of w are handed out to the threads;
//! each thread makes all columns of its rows.

use super::check::{self, Answer, ensure};
use super::{Args, Worker, product};
use crate::quant::{self, Format, GROUP, XGroup, activations, with_format};
use crate::scratch::Arena;
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};

pub use product::Column;

/// Activations up to which each thread quantises all of them, which is sooner done than waiting for the others.
const FEW: usize = 16384;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (w, x) = (check::decodable(node, 0)?.ne(), check::floats(node, 1)?.ne());
    ensure(w[0] == x[0] && x[2] % w[2] == 0 && x[3] % w[3] == 0, Reason::Shape)?;
    check::result(node, DType::F32, [w[1], x[1], x[2], x[3]])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let (weights, x) = (a.arg(0), a.arg(1));
    let mut own = std::mem::take(&mut w.scratch.x);
    let quantised = quantise(w, weights, x, &mut own);
    let mut columns = std::mem::take(&mut w.scratch.columns);
    let (r2, r3) = (x.ne[2] / weights.ne[2], x.ne[3] / weights.ne[3]);

    let pieces = product::Pieces::new(w.n, weights.ne[1], weights.ne[2] * weights.ne[3]);
    let mut current = None;
    while let Some((matrix, rows)) = pieces.take(w) {
        let at = [matrix % weights.ne[2], matrix / weights.ne[2]];
        if current.replace(matrix) != Some(matrix) {
            columns.clear();
            for row in 0..x.n_rows() {
                let [_, i2, i3] = x.unravel(row);
                if [i2 / r2, i3 / r3] == at {
                    columns.push(Column { x: row, y: row });
                }
            }
        }
        let product = product::Product { w: weights, at, x, quantised, columns: &columns, y: &a.dst };
        product::compute(w.isa, &product, rows, w.scratch);
    }
    w.scratch.columns = columns;
    w.scratch.x = own;
}

/// Bytes of the team's memory for quantised activations; 0 if each thread makes its own.
pub fn shared_bytes(a: &Args) -> usize {
    match quant::is_supported(a.arg(0).dtype) && a.arg(1).n_elems() > FEW {
        true => a.arg(1).n_elems() / GROUP * size_of::<XGroup>(),
        false => 0,
    }
}

/// The rows of x quantised for `weights`, one after the other; empty for float weights.
pub fn quantise<'a>(w: &Worker<'a>, weights: &Tensor, x: &Tensor, own: &'a mut Arena) -> &'a [XGroup] {
    with_format!(weights.dtype, F => quantise_for::<F>(w, x, own), else &[])
}

fn quantise_for<'a, F: Format>(w: &Worker<'a>, x: &Tensor, own: &'a mut Arena) -> &'a [XGroup] {
    let per_row = x.ne[0] / GROUP;
    let n = per_row * x.n_rows();
    if x.n_elems() <= FEW {
        let own = own.take::<XGroup>(n);
        for (row, out) in own.chunks_exact_mut(per_row).enumerate() {
            activations::quantise::<F>(w.isa, x.row(x.unravel(row)), out);
        }
        return own;
    }
    for row in w.share(x.n_rows()) {
        // SAFETY: rows are shared out, and the next use is after the barrier.
        let out = unsafe { w.shared.part_mut(row * per_row..(row + 1) * per_row) };
        activations::quantise::<F>(w.isa, x.row(x.unravel(row)), out);
    }
    (w.meet)();
    // SAFETY: all wrote before the barrier; the next node that writes waits for this one to end.
    unsafe { w.shared.get(n) }
}
