//! y = x · scale + bias.

use super::check::{self, Answer};
use super::source;
use super::steps::has;
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::ScaleParams;
use llmrt_plugin::{NodeView, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnMuls, math.aclnnAdds, math.aclnnCast, math.aclnnInplaceCopy)?;
    check::params(ScaleParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(chip, node, 0)?;
    check::float_result(chip, node, x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = ScaleParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let x = call.to(&x, ACL_FLOAT)?;
    let placed = call.place(&y, ACL_FLOAT)?;
    call.scale(&x, p.scale, &placed)?;
    if p.bias != 0.0 {
        call.shift(&placed, p.bias, &placed)?;
    }
    call.store(&placed, &y)
}
