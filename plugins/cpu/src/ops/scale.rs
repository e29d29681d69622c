//! y = x · scale + bias, computed in f32.

use super::check::{self, Answer};
use super::{Args, Output, Worker, elementwise};
use llmrt_plugin::abi::op::ScaleParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(ScaleParams::from_bytes(node.params_bytes()))?;
    let x = check::numbers(node, 0)?;
    check::result(node, x.dtype().ok_or(Reason::Type)?, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let ScaleParams { scale, bias } = a.params(ScaleParams::from_bytes);
    elementwise::map(w, a, out, |_, x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale + bias));
}
