//! y = a ∘ b, elementwise, ∘ one of + − · ÷ and the power; b repeats along each dim. Computed in F32 and rounded once.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::{Operand, broadcast};
use crate::sys::*;
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    match node.op() {
        Some(Op::Add | Op::Add1) => has!(cann, math.aclnnAdd)?,
        Some(Op::Sub) => has!(cann, math.aclnnSub)?,
        Some(Op::Mul) => has!(cann, math.aclnnMul)?,
        Some(Op::Pow) => has!(cann, math.aclnnPowTensorTensor)?,
        _ => has!(cann, math.aclnnDiv)?,
    }
    has!(cann, math.aclnnCast, math.aclnnInplaceCopy)?;
    let (a, b) = (check::floats(chip, node, 0)?, check::floats(chip, node, 1)?);
    ensure(a.ne().iter().zip(b.ne()).all(|(a, b)| b > 0 && a % b == 0), Reason::Shape)?;
    check::float_result(chip, node, a.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (a, b, y) = (source(node, 0)?, source(node, 1)?, Operand::of(&node.dst())?);
    let (a, b) = (call.to(&a, ACL_FLOAT)?, call.to(&b, ACL_FLOAT)?);
    let placed = call.place(&y, ACL_FLOAT)?;
    let all = broadcast(&a, &b, &placed);
    let [a, b, out] = all.ok_or_else(|| Error::unsupported("the operands need more than 8 dims"))?;
    match node.op() {
        Some(Op::Add | Op::Add1) => call.add(&a, &b, &out)?,
        Some(Op::Sub) => call.sub(&a, &b, &out)?,
        Some(Op::Mul) => call.mul(&a, &b, &out)?,
        Some(Op::Pow) => call.pow(&a, &b, &out)?,
        _ => call.div(&a, &b, &out)?,
    }
    call.store(&placed, &y)
}
