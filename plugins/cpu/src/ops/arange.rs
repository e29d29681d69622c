//! y[i] = start + step · i, for all values before stop.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::ArangeParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(ArangeParams::from_bytes(node.params_bytes()))?;
    let n = ((p.stop - p.start) / p.step).ceil();
    ensure((1.0..=u32::MAX as f32).contains(&n), Reason::Param)?;
    check::result(node, DType::F32, [n as usize, 1, 1, 1])
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(ArangeParams::from_bytes);
    for (_, part, y) in out.pieces() {
        let y = y.floats();
        y.iter_mut().zip(part).for_each(|(y, i)| *y = p.start + p.step * i as f32);
    }
}
