//! y = activation(gate) · up. One source holds both as halves of its rows.

use super::check::{self, Answer, ensure};
use super::steps::has;
use super::{source, unary};
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::GluParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

/// The op of an activation's number.
fn activation(number: u32) -> Option<Op> {
    [Op::Silu, Op::Gelu, Op::Relu, Op::GeluErf, Op::Sigmoid, Op::GeluQuick].get(number as usize).copied()
}

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    let p = check::params(GluParams::from_bytes(node.params_bytes()))?;
    let op = activation(p.activation).ok_or(Reason::Param)?;
    ensure(p.swapped <= 1, Reason::Param)?;
    has!(cann, math.aclnnMul, math.aclnnCast)?;
    unary::has_op(cann, op)?;
    let gate = check::floats(chip, node, 0)?;
    let [n, rest @ ..] = gate.ne();
    if node.src(1).is_some() {
        ensure(check::floats(chip, node, 1)?.ne() == gate.ne(), Reason::Shape)?;
        return check::result(node, Some(DType::F32), gate.ne());
    }
    ensure(n % 2 == 0, Reason::Shape)?;
    check::result(node, Some(DType::F32), [n / 2, rest[0], rest[1], rest[2]])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = GluParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let op = activation(p.activation).unwrap_or(Op::Silu);
    let (both, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let (gate, up) = match node.src(1) {
        Some(up) => (both.clone(), Operand::of(&up)?),
        None => {
            let half = |i: u32| both.slice(0, i64::from(i) * y.ne[0], y.ne[0]);
            (half(p.swapped), half(1 - p.swapped))
        }
    };
    let halves = node.src(1).is_none() && p.swapped == 0;
    if op == Op::Silu && halves && fits_library(call, &both, &y) {
        let (x, y) = (call.tensor(&both)?, call.tensor(&y)?);
        return run!(call, nn.aclnnSwiGlu(x, -1, y));
    }
    let (gate, up) = (call.to(&gate, ACL_FLOAT)?, call.to(&up, ACL_FLOAT)?);
    let active = call.temporary(ACL_FLOAT, &gate.ne)?;
    unary::activate(call, op, &gate, &active)?;
    call.mul(&active, &up, &y)
}

/// One operator for all: F32, no gaps, and on the smaller chips rows of whole 64 bytes.
fn fits_library(call: &Call<'_>, both: &Operand, y: &Operand) -> bool {
    let has = call.stream.runtime.cann.nn.aclnnSwiGlu.plan.is_some();
    let dense = both.dtype == ACL_FLOAT && both.is_contiguous() && y.is_contiguous();
    has && dense && (call.stream.chip.bf16 || y.ne[0] % 16 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_have_the_numbers_of_the_op_table() {
        assert_eq!(activation(0), Some(Op::Silu));
        assert_eq!(activation(3), Some(Op::GeluErf));
        assert_eq!(activation(6), None, "gpt-oss has two more numbers");
    }
}
