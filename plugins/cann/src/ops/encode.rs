//! Numbers as blocks of Q8_0 and Q4_0, written on the card.

use super::check::Answer;
use super::largest::largest;
use super::packed::Packed;
use super::steps::has;
use super::unary;
use crate::call::Call;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, Op, Result};

/// Numbers of a block.
const GROUP: i64 = 32;
/// What the largest number of a block is at least, so that it divides.
const SMALLEST: f32 = 1e-30;

/// Whether blocks of a dtype can be written.
pub fn can_encode(cann: &Cann, dtype: DType) -> bool {
    let has = || -> Answer {
        has!(
            cann,
            math.aclnnAbs,
            math.aclnnTopk,
            math.aclnnDiv,
            math.aclnnMul,
            math.aclnnSub,
            math.aclnnAdd
        )?;
        has!(cann, math.aclnnMuls, math.aclnnAdds, math.aclnnClampMin, math.aclnnClamp, math.aclnnSign)?;
        has!(cann, math.aclnnTrunc, math.aclnnFloor, math.aclnnInplaceCopy, math.aclnnInplaceFillScalar)?;
        has!(cann, math.aclnnCast)
    };
    matches!(dtype, DType::Q8_0 | DType::Q4_0) && has().is_ok()
}

/// y = x, F32 without gaps.
pub fn encode(call: &mut Call<'_>, x: &Operand, dtype: DType, y: &Packed) -> Result<()> {
    let n = x.n_elements() / GROUP;
    let (x, (bytes, d)) = (x.reshape(&[GROUP, n]), y.blocks(n));
    let (size, ones) = (call.temporary(ACL_FLOAT, &x.ne)?, call.temporary(ACL_FLOAT, &[1, n])?);
    call.abs(&x, &size)?;
    let most = largest(call, &size)?;
    call.fill(&ones, 1.0)?;
    if dtype == DType::Q8_0 {
        let step = scaled(call, &most, 1.0 / 127.0, &d)?;
        call.div(&ones, &step, &step)?;
        call.mul(&x, &step, &size)?;
        unary::activate(call, Op::Round, &size, &size)?;
        return call.copy(&size, &bytes);
    }
    // The sign of the largest: 1 - 2 · sign(largest size - largest).
    let sign = largest(call, &x)?;
    call.sub(&most, &sign, &sign)?;
    call.sign(&sign, &sign)?;
    call.affine(&sign, -2.0, 1.0, &sign)?;
    call.mul(&most, &sign, &sign)?;
    let step = scaled(call, &sign, -1.0 / 8.0, &d)?;
    call.div(&ones, &step, &step)?;
    call.mul(&x, &step, &size)?;
    call.shift(&size, 8.5, &size)?;
    call.floor(&size, &size)?;
    call.clamp(&size, 0.0, 15.0, &size)?;
    let (low, high) = (size.slice(0, 0, GROUP / 2), size.slice(0, GROUP / 2, GROUP / 2));
    call.scale(&high, 16.0, &high)?;
    call.add(&low, &high, &low)?;
    call.copy(&low, &bytes.as_type(ACL_UINT8))
}

/// largest · factor, which is written to d; where it is 0 a small number instead, because all of the block is 0.
fn scaled(call: &mut Call<'_>, largest: &Operand, factor: f32, d: &Operand) -> Result<Operand> {
    let (step, zero) = (call.temporary(ACL_FLOAT, &largest.ne)?, call.temporary(ACL_FLOAT, &largest.ne)?);
    call.scale(largest, factor, &step)?;
    call.copy(&step, d)?;
    call.abs(&step, &zero)?;
    call.sign(&zero, &zero)?;
    call.affine(&zero, -SMALLEST, SMALLEST, &zero)?;
    call.add(&step, &zero, &step)?;
    Ok(step)
}
