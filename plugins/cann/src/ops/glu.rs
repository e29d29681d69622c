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
use llmrt_plugin::{NodeView, Op, Reason, Result};

/// The activation that is no op of its own.
const GPT_OSS: u32 = 6;

/// The op of an activation's number.
fn activation(number: u32) -> Option<Op> {
    [Op::Silu, Op::Gelu, Op::Relu, Op::GeluErf, Op::Sigmoid, Op::GeluQuick].get(number as usize).copied()
}

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    let p = check::params(GluParams::from_bytes(node.params_bytes()))?;
    ensure(p.swapped <= 1, Reason::Param)?;
    has!(cann, math.aclnnMul, math.aclnnCast, math.aclnnInplaceCopy)?;
    match activation(p.activation) {
        Some(op) => unary::has_op(cann, op)?,
        None => has!(cann, nn.aclnnSigmoid, math.aclnnClamp, math.aclnnMuls, math.aclnnAdds)?,
    }
    ensure(p.activation <= GPT_OSS, Reason::Param)?;
    let gate = check::floats(chip, node, 0)?;
    let [n, rest @ ..] = gate.ne();
    if node.src(1).is_some() {
        ensure(check::floats(chip, node, 1)?.ne() == gate.ne(), Reason::Shape)?;
        return check::float_result(chip, node, gate.ne());
    }
    ensure(n % 2 == 0, Reason::Shape)?;
    check::float_result(chip, node, [n / 2, rest[0], rest[1], rest[2]])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = GluParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let op = activation(p.activation);
    let (both, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let (gate, up) = match node.src(1) {
        Some(up) => (both.clone(), Operand::of(&up)?),
        None => {
            let half = |i: u32| both.slice(0, i64::from(i) * y.ne[0], y.ne[0]);
            (half(p.swapped), half(1 - p.swapped))
        }
    };
    let halves = node.src(1).is_none() && p.swapped == 0;
    if op == Some(Op::Silu) && halves && fits_library(call, &both, &y) {
        let (x, y) = (call.tensor(&both)?, call.tensor(&y)?);
        return run!(call, nn.aclnnSwiGlu(x, -1, y));
    }
    let (gate, up) = (call.to(&gate, ACL_FLOAT)?, call.to(&up, ACL_FLOAT)?);
    let (active, placed) = (call.temporary(ACL_FLOAT, &gate.ne)?, call.place(&y, ACL_FLOAT)?);
    match op {
        Some(op) => {
            unary::activate(call, op, &gate, &active)?;
            call.mul(&active, &up, &placed)?;
        }
        None => gpt_oss(call, &p, [&gate, &up], &active, &placed)?,
    }
    call.store(&placed, &y)
}

/// y = g · sigmoid(alpha · g) · (u + 1), where g is the gate, at most the limit, and u is up within plus and minus it.
fn gpt_oss(
    call: &mut Call<'_>,
    p: &GluParams,
    [gate, up]: [&Operand; 2],
    active: &Operand,
    y: &Operand,
) -> Result<()> {
    let gated = call.temporary(ACL_FLOAT, &gate.ne)?;
    call.clamp(gate, f32::NEG_INFINITY, p.limit, &gated)?;
    call.scale(&gated, p.alpha, active)?;
    unary::activate(call, Op::Sigmoid, active, active)?;
    call.mul(&gated, active, active)?;
    call.clamp(up, -p.limit, p.limit, &gated)?;
    call.shift(&gated, 1.0, &gated)?;
    call.mul(active, &gated, y)
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
        assert_eq!(activation(GPT_OSS), None, "it has two more numbers");
    }
}
