//! y[i] = start + step · i, for all values before stop.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
use llmrt_plugin::abi::op::ArangeParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(ArangeParams::from_bytes(node.params_bytes()))?;
    let n = ((p.stop - p.start) / p.step).ceil();
    ensure((1.0..=u32::MAX as f32).contains(&n), Reason::Param)?;
    check::result(node, DType::F32, [n as usize, 1, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let p = a.params(ArangeParams::from_bytes);
    for (row, part) in w.pieces(&a.dst) {
        let at = a.dst.unravel(row);
        // SAFETY: pieces are disjoint.
        let y = unsafe { a.dst.part_mut(at, part.clone()) };
        y.iter_mut().zip(part).for_each(|(y, i)| *y = p.start + p.step * i as f32);
    }
}
