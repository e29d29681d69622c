//! The ops, a file per family: `supports` says which nodes the card runs, `compute` enqueues one.

mod binary;
mod check;
mod unary;

use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};

/// Whether a card with this chip and these libraries runs a node, or what is in the way.
pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> check::Answer {
    match node.op().ok_or(Reason::Op)? {
        Op::Add | Op::Sub | Op::Mul | Op::Div => binary::supports(cann, chip, node),
        Op::Silu | Op::Relu | Op::Tanh | Op::Sigmoid | Op::Gelu | Op::GeluErf | Op::GeluQuick => {
            unary::supports(cann, chip, node)
        }
        _ => Err(Reason::Op),
    }
}

/// Enqueues a node that [`supports`] accepted and whose result is not empty.
pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    match node.op() {
        Some(Op::Add | Op::Sub | Op::Mul | Op::Div) => binary::compute(call, node),
        Some(Op::Silu | Op::Relu | Op::Tanh | Op::Sigmoid | Op::Gelu | Op::GeluErf | Op::GeluQuick) => {
            unary::compute(call, node)
        }
        _ => Err(Error::unsupported(format!("op {}", node.op_id()))),
    }
}
