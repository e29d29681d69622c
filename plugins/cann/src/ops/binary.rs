//! y = a ∘ b, elementwise, ∘ one of + − · ÷; b repeats along each dim.

use super::check::{self, Answer, ensure};
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::{Operand, broadcast};
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};

pub fn supports(_cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::floats(chip, node, 0)?, check::floats(chip, node, 1)?);
    ensure(a.ne().iter().zip(b.ne()).all(|(a, b)| b > 0 && a % b == 0), Reason::Shape)?;
    ensure(a.dtype() == b.dtype(), Reason::Type)?;
    check::result(node, a.dtype(), a.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let operand = |t: Option<_>| {
        t.as_ref().map(Operand::of).unwrap_or_else(|| Err(Error::invalid("a source is missing")))
    };
    let (a, b, y) = (operand(node.src(0))?, operand(node.src(1))?, Operand::of(&node.dst())?);
    let all =
        broadcast(&a, &b, &y).ok_or_else(|| Error::unsupported("the operands need more than 8 dims"))?;
    let [a, b, y] = all.map(|t| call.tensor(&t));
    let (a, b, y) = (a?, b?, y?);
    match node.op() {
        Some(Op::Add) => {
            let one = call.float(1.0)?;
            run!(call, math.aclnnAdd(a, b, one, y))
        }
        Some(Op::Sub) => {
            let one = call.float(1.0)?;
            run!(call, math.aclnnSub(a, b, one, y))
        }
        Some(Op::Mul) => run!(call, math.aclnnMul(a, b, y)),
        _ => run!(call, math.aclnnDiv(a, b, y)),
    }
}
