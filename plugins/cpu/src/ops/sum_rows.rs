//! y = Σ x over each row; of empty rows it is 0.

use super::check::{self, Answer};
use super::{Args, Output, Worker, sum};
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let [_, ne1, ne2, ne3] = check::any_floats(node, 0)?.ne();
    check::result(node, DType::F32, [1, ne1, ne2, ne3])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    for (at, y) in out.rows() {
        let y = y.floats();
        y[0] = sum::of_row(w, a.arg(0), at) as f32;
    }
}
