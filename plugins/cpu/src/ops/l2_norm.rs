//! y = x / max(√Σx², eps), over rows.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, layer_norm, rows};
use llmrt_plugin::abi::op::NormParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let eps = check::params(NormParams::from_bytes(node.params_bytes()))?.eps;
    ensure(eps >= 0.0, Reason::Param)?;
    let x = check::numbers(node, 0)?;
    ensure(x.dtype() == Some(DType::F32), Reason::Type)?;
    check::result(node, DType::F32, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let eps = a.params(NormParams::from_bytes).eps;
    let x = a.arg(0);
    for (at, y) in out.rows() {
        let x = rows::read(w.isa, x, at, 0..x.ne[0], w.scratch.rows.take(x.ne[0]));
        let scale = layer_norm::sum_of_squares_about(w.isa, x, 0.0).sqrt().max(eps).recip();
        let y = y.floats();
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale);
    }
}
