//! y = x [w, h, c, n] with zero mean and unit variance in each group of channels.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::GroupNormParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnGroupNorm, math.aclnnCast, math.aclnnInplaceCopy)?;
    let groups = check::params(GroupNormParams::from_bytes(node.params_bytes()))?.n_groups as usize;
    let x = check::floats(chip, node, 0)?;
    // Groups of unequal length are unknown to the library.
    ensure(groups > 0 && x.ne()[2] % groups.max(1) == 0, Reason::Param)?;
    check::result(node, Some(DType::F32), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = GroupNormParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let (hw, c, n) = (x.ne[0] * x.ne[1], x.ne[2], x.ne[3]);
    let (groups, none) = (i64::from(p.n_groups), std::ptr::null());
    let (x, placed) = (call.dense(&x, ACL_FLOAT)?, call.place(&y, ACL_FLOAT)?);
    let (mean, rstd) = (call.temporary(ACL_FLOAT, &[groups, n])?, call.temporary(ACL_FLOAT, &[groups, n])?);
    let (x, out, mean, rstd) =
        (call.tensor(&x)?, call.tensor(&placed)?, call.tensor(&mean)?, call.tensor(&rstd)?);
    run!(call, nn.aclnnGroupNorm(x, none, none, n, c, hw, groups, p.eps.into(), out, mean, rstd))?;
    call.store(&placed, &y)
}
