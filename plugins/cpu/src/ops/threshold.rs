//! y = 0 where |x| < t, else x.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, elementwise};
use llmrt_plugin::abi::op::ThresholdParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(ThresholdParams::from_bytes(node.params_bytes()))?;
    ensure(!p.threshold.is_nan(), Reason::Param)?;
    check::result(node, DType::F32, check::any_floats(node, 0)?.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let ThresholdParams { threshold } = a.params(ThresholdParams::from_bytes);
    let kept = |x: f32| if x.abs() < threshold { 0.0 } else { x };
    elementwise::map(w, a, out, |_, x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y = kept(*x)));
}
