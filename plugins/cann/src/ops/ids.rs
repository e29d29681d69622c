//! Numbers of rows that may be out of range. A kernel that follows one faults, so they are 0 for kernels, and a factor
//! of 0 or 1 marks which they were. Both are computed once per graph.

use super::check::Answer;
use super::steps::has;
use crate::call::{Call, Key};
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{Result, TensorView};

/// Row numbers of a tensor, for a table of `n` rows.
pub struct Ids {
    /// I32 without gaps, in range; in the dims of the tensor.
    pub index: Operand,
    /// F32: 1 where the number was in range, else 0.
    pub valid: Operand,
}

/// What ids are read with.
pub fn can_read(cann: &Cann) -> Answer {
    has!(cann, math.aclnnCast, math.aclnnMuls, math.aclnnAdds, math.aclnnClamp, math.aclnnMul)
}

/// The ids in a tensor.
pub fn of(call: &mut Call<'_>, t: &TensorView<'_>, n: i64) -> Result<Ids> {
    let ids = Operand::of(t)?;
    let key = |what| Key(what, vec![t.id()], n.to_ne_bytes().to_vec());
    let valid = call.shared(key("ids valid"), ACL_FLOAT, &ids.ne, |call, valid| {
        let ids = call.cast(&ids, ACL_FLOAT)?;
        in_range(call, &ids, n, valid)
    })?;
    let index = call.shared(key("ids"), ACL_INT32, &ids.ne, |call, index| {
        let ids = call.cast(&ids, ACL_FLOAT)?;
        call.mul(&ids, &valid, &ids)?;
        call.convert(&ids, index)
    })?;
    Ok(Ids { index, valid })
}

/// y = 1 where a number is within 0 and n - 1, else 0; numbers are F32 without a fraction.
pub fn in_range(call: &mut Call<'_>, numbers: &Operand, n: i64, y: &Operand) -> Result<()> {
    let below = call.temporary(ACL_FLOAT, &numbers.ne)?;
    call.affine(numbers, -1.0, n as f32, &below)?;
    call.clamp(&below, 0.0, 1.0, &below)?;
    call.shift(numbers, 1.0, y)?;
    call.clamp(y, 0.0, 1.0, y)?;
    call.mul(y, &below, y)
}
