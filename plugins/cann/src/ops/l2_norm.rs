//! y = x / max(√Σx², eps) over rows.

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
    has!(cann, math.aclnnNorm, math.aclnnClampMin, math.aclnnDiv, math.aclnnCast)?;
    let eps = check::params(NormParams::from_bytes(node.params_bytes()))?.eps;
    ensure(eps >= 0.0, Reason::Param)?;
    let x = check::floats(chip, node, 0)?;
    check::result(node, Some(DType::F32), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let eps = NormParams::from_bytes(node.params_bytes()).unwrap_or_default().eps;
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let x = call.to(&x, ACL_FLOAT)?;
    let mut ne = x.ne.clone();
    ne[0] = 1;
    let lengths = call.temporary(ACL_FLOAT, &ne)?;
    let (two, rows) = (call.float(2.0)?, call.ints(&[3])?);
    let (t, out) = (call.tensor(&x)?, call.tensor(&lengths)?);
    run!(call, math.aclnnNorm(t, two, rows, true, out))?;
    call.at_least(&lengths, eps, &lengths)?;
    call.div(&x, &lengths, &y)
}
