//! Quantised weights in the layout that `seal` gave them, as operands; and their numbers, computed on the card.

use crate::buffer::CardMemory;
use crate::call::Call;
use crate::layout::{self, GROUP, INT4};
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{Error, Result, TensorView};
use std::ffi::c_void;

/// A sealed weight: rows of all its matrices, one behind the other.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Two values per byte; otherwise one.
    pub int4: bool,
    /// Elements of a row.
    pub k: i64,
    /// Rows.
    pub rows: i64,
    base: *mut c_void,
    at: i64,
    scales_at: i64,
}

impl Sealed {
    /// A weight that was sealed; `None` if it stayed as it was in the file.
    pub fn of(t: &TensorView<'_>) -> Result<Option<Sealed>> {
        if t.layout_id() == 0 {
            return Ok(None);
        }
        let memory = t.buffer::<CardMemory>();
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{}` is not on a card", t.name())))?;
        let at = t.offset() as i64;
        Ok(Some(Sealed {
            int4: t.layout_id() == INT4,
            k: t.ne()[0] as i64,
            rows: t.n_rows() as i64,
            base: memory.address(0),
            at,
            scales_at: at + layout::scales_at(t.layout_id(), t.n_elements()) as i64,
        }))
    }

    /// `n` rows from `start` on.
    pub fn part(&self, start: i64, n: i64) -> Sealed {
        let row_bytes = if self.int4 { self.k / 2 } else { self.k };
        let (at, scales_at) =
            (self.at + start * row_bytes, self.scales_at + start * (self.k / GROUP as i64) * 2);
        Sealed { rows: n, at, scales_at, ..self.clone() }
    }

    /// Values as bytes: I8 [k, rows], or [k / 2, rows] with two values each.
    pub fn bytes(&self) -> Operand {
        let k = if self.int4 { self.k / 2 } else { self.k };
        let bytes = Operand::contiguous(ACL_INT8, &[k, self.rows], self.base);
        Operand { offset: self.at, ..bytes }
    }

    /// Values as products take them: [k, rows] of 4 or 8 bits.
    pub fn values(&self) -> Operand {
        match self.int4 {
            false => self.bytes(),
            true => {
                let values = Operand::contiguous(ACL_INT4, &[self.k, self.rows], self.base);
                Operand { offset: self.at * 2, ..values }
            }
        }
    }

    /// Scales: F16 [k / 32, rows].
    pub fn scales(&self) -> Operand {
        let scales = Operand::contiguous(ACL_FLOAT16, &[self.k / GROUP as i64, self.rows], self.base);
        Operand { offset: self.scales_at / 2, ..scales }
    }
}

/// y = value · scale, from rows of bytes and scales; y is F32 or F16 [k, rows] without gaps.
pub fn decode(call: &mut Call<'_>, bytes: &Operand, scales: &Operand, int4: bool, y: &Operand) -> Result<()> {
    let (group, rows) = (GROUP as i64, y.ne[1]);
    let scales = call.dense(scales, ACL_FLOAT)?;
    let exact = call.place(y, ACL_FLOAT)?;
    match int4 {
        false => call.convert(bytes, &exact)?,
        true => unpack(call, bytes, &exact)?,
    }
    let groups = exact.reshape(&[group, y.ne[0] / group, rows]);
    call.mul(&groups, &scales.with_dim(0), &groups)?;
    call.store(&exact, y)
}

/// Two values of 4 bits from each byte, the low half first. A byte b as a signed number is 16 · high + low with low
/// within 0 and 15; a low half past 7 stands for a negative number.
fn unpack(call: &mut Call<'_>, bytes: &Operand, y: &Operand) -> Result<()> {
    let bytes = call.cast(bytes, ACL_FLOAT)?;
    let (high, low) = (call.temporary(ACL_FLOAT, &bytes.ne)?, call.temporary(ACL_FLOAT, &bytes.ne)?);
    call.scale(&bytes, 1.0 / 16.0, &high)?;
    call.floor(&high, &high)?;
    call.scale(&high, -16.0, &low)?;
    call.add(&bytes, &low, &low)?;
    call.shift(&low, -7.0, &bytes)?;
    call.clamp(&bytes, 0.0, 1.0, &bytes)?;
    call.scale(&bytes, -16.0, &bytes)?;
    call.add(&low, &bytes, &low)?;
    call.copy(&low, &y.every(0, 0, 2))?;
    call.copy(&high, &y.every(0, 1, 2))
}
