//! y = Σ x over all elements, in the order of memory: pieces in f32, their sum in f64.

use super::check::{self, Answer};
use super::{Args, Output, Worker, layer_norm, rows};
use crate::tensor::Tensor;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let x = check::numbers(node, 0)?;
    check::result(node, x.dtype().ok_or(Reason::Type)?, [1; 4])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let x = a.arg(0);
    // One number has one maker.
    for (_, y) in out.rows() {
        let sum: f64 = (0..x.n_rows()).map(|row| of_row(w, x, x.unravel(row))).sum();
        y.write(w.isa, &[sum as f32]);
    }
}

/// Sum of the row at these indices, at any strides; 0 if it is empty.
pub fn of_row(w: &mut Worker<'_>, x: &Tensor, at: [usize; 3]) -> f64 {
    const PIECE: usize = 1024;
    let (isa, room) = (w.isa, w.scratch.rows.take(PIECE.min(x.ne[0])));
    let pieces = (0..x.ne[0]).step_by(PIECE).map(|start| start..(start + PIECE).min(x.ne[0]));
    pieces.map(|part| layer_norm::sum(isa, rows::read(isa, x, at, part, room)) as f64).sum()
}
