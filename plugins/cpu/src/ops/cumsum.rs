//! yᵢ = x₀ + … + xᵢ along each row, added up in f64.

use super::check::{self, Answer};
use super::{Args, Output, Worker, elementwise};
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let ne = check::any_floats(node, 0)?.ne();
    check::result(node, DType::F32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let x = a.arg(0);
    for (at, y) in out.rows() {
        let x = elementwise::read(w.isa, x, at, 0..x.ne[0], &mut w.scratch.rows);
        let y = y.floats();
        let mut sum = 0.0;
        for (y, x) in y.iter_mut().zip(x) {
            sum += *x as f64;
            *y = sum as f32;
        }
    }
}
