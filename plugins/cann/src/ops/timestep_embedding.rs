//! y[j, i] = cos(t[i] · f_j), y[half + j, i] = sin(t[i] · f_j), f_j = exp(-ln(max_period) · j / half); the last of an odd
//! number of elements is 0.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::TimestepEmbeddingParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnArange, math.aclnnMuls, math.aclnnExp, math.aclnnMul, math.aclnnSin)?;
    has!(cann, math.aclnnCos, math.aclnnInplaceFillScalar, math.aclnnCast)?;
    let p = check::params(TimestepEmbeddingParams::from_bytes(node.params_bytes()))?;
    ensure(p.dim > 0 && p.max_period > 0, Reason::Param)?;
    let t = check::floats(chip, node, 0)?;
    ensure(t.ne()[1..] == [1, 1, 1], Reason::Shape)?;
    check::result(node, Some(DType::F32), [p.dim as usize, t.ne()[0], 1, 1])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = TimestepEmbeddingParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (t, y) = (source(node, 0)?.flat(1), Operand::of(&node.dst())?.flat(2));
    let half = i64::from(p.dim / 2);
    if p.dim % 2 == 1 {
        call.fill(&y.slice(0, 2 * half, 1), 0.0)?;
    }
    if half == 0 {
        return Ok(());
    }
    let (t, frequencies) = (call.to(&t, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &[half])?);
    call.count(0.0, 1.0, &frequencies)?;
    call.scale(&frequencies, -(p.max_period as f32).ln() / half as f32, &frequencies)?;
    call.exp(&frequencies, &frequencies)?;
    let angles = call.temporary(ACL_FLOAT, &[half, t.ne[0]])?;
    call.mul(&frequencies, &t.with_dim(0), &angles)?;
    call.cos(&angles, &y.slice(0, 0, half))?;
    call.sin(&angles, &y.slice(0, half, half))
}
