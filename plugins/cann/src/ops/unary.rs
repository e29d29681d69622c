//! y = f(x), elementwise.

use super::check::{self, Answer};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::{ClampParams, LeakyReluParams};
use llmrt_plugin::{NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has_op(cann, node.op().ok_or(Reason::Op)?)?;
    has!(cann, math.aclnnCast, math.aclnnInplaceCopy)?;
    let params = node.params_bytes();
    match node.op() {
        Some(Op::LeakyRelu) => check::params(LeakyReluParams::from_bytes(params)).map(|_| ())?,
        Some(Op::Clamp) => check::params(ClampParams::from_bytes(params)).map(|_| ())?,
        _ => {}
    }
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
        Op::Abs => has!(cann, math.aclnnAbs),
        Op::Sgn => has!(cann, math.aclnnSign),
        Op::Neg => has!(cann, math.aclnnNeg),
        Op::Step => has!(cann, math.aclnnSign, math.aclnnClamp),
        Op::Elu => has!(cann, nn.aclnnElu),
        Op::HardSwish => has!(cann, nn.aclnnHardswish),
        Op::HardSigmoid => has!(cann, nn.aclnnHardsigmoid),
        Op::Exp => has!(cann, math.aclnnExp),
        Op::Expm1 => has!(cann, math.aclnnExpm1),
        Op::Softplus => has!(cann, nn.aclnnSoftplus),
        Op::Floor => has!(cann, math.aclnnFloor),
        Op::Ceil => has!(cann, math.aclnnCeil),
        Op::Round => has!(cann, math.aclnnTrunc, math.aclnnSub, math.aclnnAdd, math.aclnnMuls),
        Op::Trunc => has!(cann, math.aclnnTrunc),
        Op::Sqr => has!(cann, math.aclnnMul),
        Op::Sqrt => has!(cann, math.aclnnSqrt),
        Op::Log => has!(cann, math.aclnnLog),
        Op::Sin => has!(cann, math.aclnnSin),
        Op::Cos => has!(cann, math.aclnnCos),
        Op::LeakyRelu => has!(cann, nn.aclnnLeakyRelu),
        Op::Clamp => has!(cann, math.aclnnClamp),
        _ => Err(Reason::Op),
    }
}

/// Computed in F32 and rounded once.
pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let x = call.to(&x, ACL_FLOAT)?;
    let placed = call.place(&y, ACL_FLOAT)?;
    let params = node.params_bytes();
    match node.op() {
        Some(Op::LeakyRelu) => {
            let slope = LeakyReluParams::from_bytes(params).unwrap_or_default().slope;
            let (x, y, slope) = (call.tensor(&x)?, call.tensor(&placed)?, call.float(slope)?);
            run!(call, nn.aclnnLeakyRelu(x, slope, y))?;
        }
        Some(Op::Clamp) => {
            let p = ClampParams::from_bytes(params).unwrap_or_default();
            // The lower bound wins over a higher one that is below it.
            call.clamp(&x, p.min, p.max.max(p.min), &placed)?;
        }
        op => activate(call, op.unwrap_or(Op::Silu), &x, &placed)?,
    }
    call.store(&placed, &y)
}

/// y = f(x), both F32.
pub fn activate(call: &mut Call<'_>, op: Op, x: &Operand, y: &Operand) -> Result<()> {
    match op {
        Op::Round => return round(call, x, y),
        Op::Step => {
            call.sign(x, y)?;
            return call.clamp(y, 0.0, 1.0, y);
        }
        Op::Sqr => return call.mul(x, x, y),
        _ => {}
    }
    let (x, y) = (call.tensor(x)?, call.tensor(y)?);
    match op {
        Op::Silu => run!(call, nn.aclnnSilu(x, y)),
        Op::Relu => run!(call, nn.aclnnRelu(x, y)),
        Op::Tanh => run!(call, math.aclnnTanh(x, y)),
        Op::Sigmoid => run!(call, nn.aclnnSigmoid(x, y)),
        // The tanh form is number 1, the error function 0.
        Op::Gelu => run!(call, nn.aclnnGeluV2(x, 1, y)),
        Op::GeluErf => run!(call, nn.aclnnGeluV2(x, 0, y)),
        Op::Abs => run!(call, math.aclnnAbs(x, y)),
        Op::Sgn => run!(call, math.aclnnSign(x, y)),
        Op::Neg => run!(call, math.aclnnNeg(x, y)),
        Op::Elu => {
            let one = call.float(1.0)?;
            run!(call, nn.aclnnElu(x, one, one, one, y))
        }
        Op::HardSwish => run!(call, nn.aclnnHardswish(x, y)),
        Op::HardSigmoid => run!(call, nn.aclnnHardsigmoid(x, y)),
        Op::Exp => run!(call, math.aclnnExp(x, y)),
        Op::Expm1 => run!(call, math.aclnnExpm1(x, y)),
        Op::Softplus => {
            let (beta, threshold) = (call.float(1.0)?, call.float(20.0)?);
            run!(call, nn.aclnnSoftplus(x, beta, threshold, y))
        }
        Op::Floor => run!(call, math.aclnnFloor(x, y)),
        Op::Ceil => run!(call, math.aclnnCeil(x, y)),
        Op::Trunc => run!(call, math.aclnnTrunc(x, y)),
        Op::Sqrt => run!(call, math.aclnnSqrt(x, y)),
        Op::Log => run!(call, math.aclnnLog(x, y)),
        Op::Sin => run!(call, math.aclnnSin(x, y)),
        Op::Cos => run!(call, math.aclnnCos(x, y)),
        // x · sigmoid(1.702 x)
        _ => run!(call, nn.aclnnFastGelu(x, y)),
    }
}

/// Halves away from 0: trunc(x) + trunc(2 (x - trunc(x))), of which nothing but the results are rounded.
fn round(call: &mut Call<'_>, x: &Operand, y: &Operand) -> Result<()> {
    let (whole, rest) = (call.temporary(ACL_FLOAT, &x.ne)?, call.temporary(ACL_FLOAT, &x.ne)?);
    activate(call, Op::Trunc, x, &whole)?;
    call.sub(x, &whole, &rest)?;
    call.scale(&rest, 2.0, &rest)?;
    activate(call, Op::Trunc, &rest, &rest)?;
    call.add(&whole, &rest, y)
}
