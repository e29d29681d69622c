//! copy: x without gaps, in another float dtype or the same. cpy: x over the elements of y, in order. Blocks of quantised
//! formats are read, and those of Q4_0 and Q8_0 written.

use super::check::{self, Answer, ensure};
use super::packed::Packed;
use super::steps::has;
use super::{encode, missing, source, weights};
use crate::call::Call;
use crate::chip::Chip;
use crate::layout;
use crate::library::Cann;
use crate::operand::{Operand, number};
use crate::sys::*;
use llmrt_plugin::abi::op::CopyParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnInplaceCopy)?;
    if node.op() == Some(Op::Copy) {
        check::params(CopyParams::from_bytes(node.params_bytes()))?;
    }
    let (x, y) = (check::given(node, from(node))?, node.dst());
    if weights::is_quantised(&x) || weights::is_quantised(&y) {
        return of_blocks(cann, chip, &x, &y);
    }
    movable(chip, &x)?;
    movable(chip, &y)?;
    // What becomes of fractions and of numbers out of range differs between chips.
    let float = |t: &TensorView<'_>| matches!(t.dtype(), Some(DType::F32 | DType::F16 | DType::BF16));
    let same = x.dtype() == y.dtype();
    ensure(same || float(&x) && float(&y), Reason::Type)?;
    let fits = x.ne() == y.ne() || x.is_contiguous() || y.is_contiguous();
    ensure(fits && x.n_elements() == y.n_elements(), Reason::Shape)
}

/// Blocks become numbers, and numbers some blocks.
fn of_blocks(cann: &Cann, chip: &Chip, x: &TensorView<'_>, y: &TensorView<'_>) -> Answer {
    let plain = if weights::is_quantised(x) { y } else { x };
    movable(chip, plain)?;
    ensure(matches!(plain.dtype(), Some(DType::F32 | DType::F16 | DType::BF16)), Reason::Type)?;
    ensure(x.n_elements() == y.n_elements(), Reason::Shape)?;
    if weights::is_quantised(x) {
        ensure(layout::canonical_at(x).is_some(), Reason::Layout)?;
        let fits = x.ne() == y.ne() || y.is_contiguous();
        return weights::can_decode(cann, x).and(ensure(fits, Reason::Shape));
    }
    let written = y.dtype().is_some_and(|dtype| encode::can_encode(cann, dtype));
    ensure(written, Reason::Type)?;
    ensure(y.is_contiguous() && y.layout_id() == 0, Reason::Layout)
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
    let (t, dst) = (node.src(from(node)).ok_or_else(missing)?, node.dst());
    if let Some(blocks) = Packed::of(&t)? {
        let (y, k) = (Operand::of(&dst)?, t.ne()[0] as i64);
        let numbers = call.temporary(ACL_FLOAT, &[k, t.n_rows() as i64])?;
        blocks.decode(call, &numbers)?;
        return call.copy(&numbers.reshape(&y.ne), &y);
    }
    if let (Some(blocks), Some(dtype)) = (Packed::of(&dst)?, dst.dtype()) {
        let x = call.dense(&Operand::of(&t)?, ACL_FLOAT)?;
        return encode::encode(call, &x, dtype, &blocks);
    }
    let (x, y) = (source(node, from(node))?, Operand::of(&node.dst())?);
    match x.ne == y.ne {
        true => call.copy(&x, &y),
        false if x.is_contiguous() => call.copy(&x.reshape(&y.ne), &y),
        false => call.copy(&x, &y.reshape(&x.ne)),
    }
}
