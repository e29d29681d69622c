//! Ops without attributes: a byte of params that is not zero is an attribute this build does not know.

use super::check::Answer;
use llmrt_plugin::{NodeView, Op, Reason};

/// Refuses attributes of ops that have none. The other ops read theirs with `from_bytes`, which refuses what is newer.
pub fn supports(op: Op, node: &NodeView<'_>) -> Answer {
    let has_none = matches!(
        op,
        Op::GetRows
            | Op::SetRows
            | Op::MulMat
            | Op::MulMatId
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Silu
            | Op::Gelu
            | Op::GeluErf
            | Op::GeluQuick
            | Op::Relu
            | Op::Tanh
            | Op::Sigmoid
            | Op::SumRows
    );
    match has_none && node.params_bytes().iter().any(|&byte| byte != 0) {
        true => Err(Reason::Param),
        false => Ok(()),
    }
}
