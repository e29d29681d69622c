//! copy: x without gaps, in another float dtype or the same. cpy: x over the elements of y, in order.

use super::check::{self, Answer, ensure};
use super::steps::has;
use super::{missing, source};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::{Operand, number};
use llmrt_plugin::abi::op::CopyParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnInplaceCopy)?;
    if node.op() == Some(Op::Copy) {
        check::params(CopyParams::from_bytes(node.params_bytes()))?;
    }
    let (x, y) = (check::given(node, from(node))?, node.dst());
    movable(chip, &x)?;
    movable(chip, &y)?;
    // What becomes of fractions and of numbers out of range differs between chips.
    let float = |t: &TensorView<'_>| matches!(t.dtype(), Some(DType::F32 | DType::F16 | DType::BF16));
    let same = x.dtype() == y.dtype();
    ensure(same || float(&x) && float(&y), Reason::Type)?;
    let fits = x.ne() == y.ne() || x.is_contiguous() || y.is_contiguous();
    ensure(fits && x.n_elements() == y.n_elements(), Reason::Shape)
}

/// `cpy` names the result first.
fn from(node: &NodeView<'_>) -> usize {
    usize::from(node.op() == Some(Op::Cpy))
}

/// A plain dtype that the chip has.
pub fn movable(chip: &Chip, t: &TensorView<'_>) -> Answer {
    let known = t.dtype().and_then(number).is_some() && t.dtype() != Some(DType::F64);
    ensure(known && (chip.bf16 || t.dtype() != Some(DType::BF16)), Reason::Type)?;
    check::whole_strides(t)
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let _ = node.src(from(node)).ok_or_else(missing)?;
    let (x, y) = (source(node, from(node))?, Operand::of(&node.dst())?);
    match x.ne == y.ne {
        true => call.copy(&x, &y),
        false if x.is_contiguous() => call.copy(&x.reshape(&y.ne), &y),
        false => call.copy(&x, &y.reshape(&x.ne)),
    }
}
