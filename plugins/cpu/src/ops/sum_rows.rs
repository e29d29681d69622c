//! y = Σ x over each row; of empty rows it is 0.

use super::check::{self, Answer};
use super::{Args, Worker, sum};
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let [_, ne1, ne2, ne3] = check::any_floats(node, 0)?.ne();
    check::result(node, DType::F32, [1, ne1, ne2, ne3])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    for row in w.share(a.dst.n_rows()) {
        let at = a.dst.unravel(row);
        // SAFETY: rows are shared out.
        let y = unsafe { a.dst.row_mut(at) };
        y[0] = sum::of_row(w, a.arg(0), at) as f32;
    }
}
