//! y = f(x), elementwise.

use super::check::{self, Answer};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has_op(cann, node.op().ok_or(Reason::Op)?)?;
    has!(cann, math.aclnnCast, math.aclnnInplaceCopy)?;
    let x = check::floats(chip, node, 0)?;
    check::float_result(chip, node, x.ne())
}

/// Whether the library has what an op needs.
pub fn has_op(cann: &Cann, op: Op) -> Answer {
    match op {
        Op::Silu => has!(cann, nn.aclnnSilu),
        Op::Relu => has!(cann, nn.aclnnRelu),
        Op::Tanh => has!(cann, math.aclnnTanh),
        Op::Sigmoid => has!(cann, nn.aclnnSigmoid),
        Op::Gelu | Op::GeluErf => has!(cann, nn.aclnnGeluV2),
        Op::GeluQuick => has!(cann, nn.aclnnFastGelu),
        _ => Err(Reason::Op),
    }
}

/// Computed in F32 and rounded once.
pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let x = call.to(&x, ACL_FLOAT)?;
    let placed = call.place(&y, ACL_FLOAT)?;
    activate(call, node.op().unwrap_or(Op::Silu), &x, &placed)?;
    call.store(&placed, &y)
}

/// y = f(x), both F32.
pub fn activate(call: &mut Call<'_>, op: Op, x: &Operand, y: &Operand) -> Result<()> {
    let (x, y) = (call.tensor(x)?, call.tensor(y)?);
    match op {
        Op::Silu => run!(call, nn.aclnnSilu(x, y)),
        Op::Relu => run!(call, nn.aclnnRelu(x, y)),
        Op::Tanh => run!(call, math.aclnnTanh(x, y)),
        Op::Sigmoid => run!(call, nn.aclnnSigmoid(x, y)),
        // The tanh form is number 1, the error function 0.
        Op::Gelu => run!(call, nn.aclnnGeluV2(x, 1, y)),
        Op::GeluErf => run!(call, nn.aclnnGeluV2(x, 0, y)),
        // x · sigmoid(1.702 x)
        _ => run!(call, nn.aclnnFastGelu(x, y)),
    }
}
