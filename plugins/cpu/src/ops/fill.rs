//! y = value, in the shape and dtype of x.

use super::check::{self, Answer};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::NodeView;
use llmrt_plugin::abi::op::FillParams;

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(FillParams::from_bytes(node.params_bytes()))?;
    let (x, dtype) = moves::plain(node, 0)?;
    check::result(node, dtype, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let value = Element::new(w.isa, a.dst.dtype, a.params(FillParams::from_bytes).value);
    moves::each_row(a, out, |mut y, _| y.fill(0..a.dst.ne[0], &value));
}
