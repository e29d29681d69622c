//! Quantised weights in the layout that `seal` gave them, as operands; and their numbers, computed on the card.

use crate::buffer::CardMemory;
use crate::call::Call;
use crate::layout::{self, GROUP, INT4, INT8};
use crate::operand::{Operand, element_bytes};
use crate::sys::*;
use llmrt_plugin::{Error, Result, TensorView};

/// A sealed weight: rows of all its matrices, one after the other.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Two values per byte; otherwise one.
    pub int4: bool,
    /// Values as bytes: I8 [k, rows], or [k / 2, rows] with two values each.
    pub bytes: Operand,
    /// Scales: F16 [k / 32, rows].
    pub scales: Operand,
}

impl Sealed {
    /// A weight of values and scales; `None` if it is something else.
    pub fn of(t: &TensorView<'_>) -> Result<Option<Sealed>> {
        if !matches!(t.layout_id(), INT4 | INT8) {
            return Ok(None);
        }
        let memory = t.buffer::<CardMemory>();
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{}` is not on a card", t.name())))?;
        let (int4, k, rows) = (t.layout_id() == INT4, t.ne()[0] as i64, t.n_rows() as i64);
        let at = |offset: u64, dtype, ne: &[i64]| {
            let all = Operand::contiguous(dtype, ne, memory.address(0));
            Operand { offset: offset as i64 / element_bytes(dtype), ..all }
        };
        let row_bytes = if int4 { k / 2 } else { k };
        let scales_at = t.offset() + layout::scales_at(t.layout_id(), t.n_elements());
        Ok(Some(Sealed {
            int4,
            bytes: at(t.offset(), ACL_INT8, &[row_bytes, rows]),
            scales: at(scales_at, ACL_FLOAT16, &[k / GROUP as i64, rows]),
        }))
    }

    /// Elements of a row.
    pub fn k(&self) -> i64 {
        self.scales.ne[0] * GROUP as i64
    }

    /// `n` rows from `start` on.
    pub fn part(&self, start: i64, n: i64) -> Sealed {
        Sealed {
            bytes: self.bytes.slice(1, start, n),
            scales: self.scales.slice(1, start, n),
            ..self.clone()
        }
    }

    /// Values as products take them: [k, rows] of 4 or 8 bits.
    pub fn values(&self) -> Operand {
        match self.int4 {
            false => self.bytes.clone(),
            true => {
                let values = Operand::contiguous(ACL_INT4, &[self.k(), self.bytes.ne[1]], self.bytes.base);
                Operand { offset: self.bytes.offset * 2, ..values }
            }
        }
    }
}

/// y = value · scale: F32 or F16 [k, rows] without gaps.
pub fn decode(call: &mut Call<'_>, w: &Sealed, y: &Operand) -> Result<()> {
    let (group, rows) = (GROUP as i64, y.ne[1]);
    let scales = call.dense(&w.scales, ACL_FLOAT)?;
    let exact = call.place(y, ACL_FLOAT)?;
    match w.int4 {
        false => call.convert(&w.bytes, &exact)?,
        true => unpack(call, &w.bytes, &exact)?,
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
