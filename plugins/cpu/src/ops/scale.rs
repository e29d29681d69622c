//! y = x · scale + bias.

use super::check::{self, Answer};
use super::{Args, Worker};
use llmrt_plugin::abi::op::ScaleParams;
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(ScaleParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(node, 0)?;
    check::result(node, DType::F32, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let ScaleParams { scale, bias } = a.params(ScaleParams::from_bytes);
    for (row, part) in w.pieces(&a.dst) {
        let at = a.dst.unravel(row);
        // SAFETY: pieces are disjoint.
        let y = unsafe { a.dst.part_mut(at, part.clone()) };
        y.iter_mut().zip(&a.arg(0).row(at)[part]).for_each(|(y, x)| *y = x * scale + bias);
    }
}
