//! y = (Σ x) / n over each row of n elements.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, sum};
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let [n, ne1, ne2, ne3] = check::any_floats(node, 0)?.ne();
    ensure(n > 0 || [ne1, ne2, ne3].contains(&0), Reason::Shape)?;
    check::result(node, DType::F32, [1, ne1, ne2, ne3])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let x = a.arg(0);
    for (at, y) in out.rows() {
        let y = y.floats();
        y[0] = (sum::of_row(w, x, at) / x.ne[0] as f64) as f32;
    }
}
