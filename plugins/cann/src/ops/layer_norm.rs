//! y = (x - mean(x)) · rsqrt(variance + eps) · w + b over rows; w and b may be left out.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::NormParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnLayerNorm, math.aclnnCast, math.aclnnInplaceCopy)?;
    check::params(NormParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(chip, node, 0)?;
    for i in (1..3).filter(|&i| node.src(i).is_some()) {
        ensure(check::floats(chip, node, i)?.ne() == [x.ne()[0], 1, 1, 1], Reason::Shape)?;
    }
    check::result(node, Some(DType::F32), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let eps = NormParams::from_bytes(node.params_bytes()).unwrap_or_default().eps;
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let mut row = |i: usize| match node.src(i) {
        Some(t) => {
            let t = call.dense(&Operand::of(&t)?.flat(1), ACL_FLOAT)?;
            call.tensor(&t).map(|t| t.cast_const())
        }
        None => Ok(std::ptr::null()),
    };
    let (w, b) = (row(1)?, row(2)?);
    let (x, placed) = (call.to(&x, ACL_FLOAT)?, call.place(&y, ACL_FLOAT)?);
    let (rows, none) = (call.ints(&x.ne[..1])?, std::ptr::null_mut());
    let (x, out) = (call.tensor(&x)?, call.tensor(&placed)?);
    run!(call, nn.aclnnLayerNorm(x, rows, w, b, eps.into(), out, none, none))?;
    call.store(&placed, &y)
}
