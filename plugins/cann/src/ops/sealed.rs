//! Quantised weights in the layout that `seal` gave them, as operands; and their numbers, computed on the card.

use crate::buffer::CardMemory;
use crate::call::Call;
use crate::layout::{self, GROUP, INT4_EXPERTS};
use crate::operand::{Operand, element_bytes};
use crate::sys::*;
use llmrt_plugin::{Error, Result, TensorView};

/// A sealed weight: matrices of values and scales.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Two values per byte; otherwise one.
    pub int4: bool,
    /// The dim in which two values share a byte: 0 where rows are stored one after the other, 1 where columns are.
    along: usize,
    /// Values as bytes: I8 [k, rows, matrices], half of dim `along` with two values each.
    pub bytes: Operand,
    /// Scales: F16 [k / 32, rows, matrices].
    pub scales: Operand,
}

impl Sealed {
    /// A weight of values and scales; `None` if it is something else.
    pub fn of(t: &TensorView<'_>) -> Result<Option<Sealed>> {
        let id = t.layout_id();
        if !layout::has_scales(id) {
            return Ok(None);
        }
        let memory = t.buffer::<CardMemory>();
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{}` is not on a card", t.name())))?;
        let (int4, by_columns) = (layout::is_int4(id), layout::is_by_columns(id));
        let (k, rows) = (t.ne()[0] as i64, t.ne()[1] as i64);
        let n = t.n_rows() as i64 / rows.max(1);
        // [inner, outer, matrices] as stored, or turned around.
        let at = |offset: u64, dtype, [inner, outer]: [i64; 2], turned: bool| {
            let all = Operand::contiguous(dtype, &[inner, outer, n], memory.address(0));
            let all = Operand { offset: offset as i64 / element_bytes(dtype), ..all };
            if turned { all.permute(&[1, 0, 2]) } else { all }
        };
        let per_byte = if int4 { 2 } else { 1 };
        let values = if by_columns { [rows / per_byte, k] } else { [k / per_byte, rows] };
        let (groups, scales_by_columns) = (k / GROUP as i64, by_columns || id == INT4_EXPERTS);
        let scales = if scales_by_columns { [rows, groups] } else { [groups, rows] };
        let scales_at = t.offset() + layout::scales_at(id, t.n_elements());
        Ok(Some(Sealed {
            int4,
            along: usize::from(by_columns),
            bytes: at(t.offset(), ACL_INT8, values, by_columns),
            scales: at(scales_at, ACL_FLOAT16, scales, scales_by_columns),
        }))
    }

    /// Elements of a row.
    pub fn k(&self) -> i64 {
        self.scales.ne[0] * GROUP as i64
    }

    /// `n` rows from `start` on, all of one matrix; both even where columns are stored.
    pub fn part(&self, start: i64, n: i64) -> Sealed {
        let (matrix, row) = (start / self.scales.ne[1], start % self.scales.ne[1]);
        let per_byte = self.scales.ne[1] / self.bytes.ne[1];
        let of = |t: &Operand, row, n| t.slice(2, matrix, 1).slice(1, row, n);
        Sealed {
            bytes: of(&self.bytes, row / per_byte, n / per_byte),
            scales: of(&self.scales, row, n),
            ..self.clone()
        }
    }

    /// The rows that `index` picks, of one matrix whose rows are stored one after the other.
    pub fn picked_rows(&self, call: &mut Call<'_>, index: &Operand) -> Result<Sealed> {
        let mut of = |t: &Operand| Ok(call.picked(&t.flat(2), 1, index)?.with_dim(2));
        Ok(Sealed { bytes: of(&self.bytes)?, scales: of(&self.scales)?, ..self.clone() })
    }

    /// The matrices that `index` picks; a matrix has no gaps, whatever its order.
    pub fn picked(&self, call: &mut Call<'_>, index: &Operand) -> Result<Sealed> {
        let mut of = |t: &Operand| {
            let one = t.ne[0] * t.ne[1];
            let flat = Operand { ne: vec![one, t.ne[2]], stride: vec![1, one], ..t.clone() };
            let picked = call.picked(&flat, 1, index)?;
            let (ne, stride) = (vec![t.ne[0], t.ne[1], index.ne[0]], vec![t.stride[0], t.stride[1], one]);
            Ok(Operand { ne, stride, ..picked })
        };
        Ok(Sealed { bytes: of(&self.bytes)?, scales: of(&self.scales)?, ..self.clone() })
    }

    /// Values as products take them: [k, rows, matrices] of 4 or 8 bits.
    pub fn values(&self) -> Operand {
        if !self.int4 {
            return self.bytes.clone();
        }
        let mut values = self.bytes.as_type(ACL_INT4);
        values.offset *= 2;
        values.ne[self.along] *= 2;
        values.stride.iter_mut().for_each(|stride| *stride *= 2);
        values.stride[self.along] = 1;
        values
    }
}

/// y = value · scale: F32 or F16 [k, rows of all matrices] without gaps.
pub fn decode(call: &mut Call<'_>, w: &Sealed, y: &Operand) -> Result<()> {
    let (group, [k, rows]) = (GROUP as i64, [y.ne[0], y.ne[1]]);
    let scales = call.cast(&w.scales, ACL_FLOAT)?.reshape(&[k / group, rows]);
    let exact = call.place(y, ACL_FLOAT)?;
    let matrices = exact.reshape(&[k, w.scales.ne[1], w.scales.ne[2]]);
    match w.int4 {
        false => call.convert(&w.bytes, &matrices)?,
        true => unpack(call, w, &matrices)?,
    }
    let groups = exact.reshape(&[group, k / group, rows]);
    call.mul(&groups, &scales.with_dim(0), &groups)?;
    call.store(&exact, y)
}

/// Two values of 4 bits from each byte, the low half first. A byte b as a signed number is 16 · high + low with low
/// within 0 and 15; a low half past 7 stands for a negative number.
fn unpack(call: &mut Call<'_>, w: &Sealed, y: &Operand) -> Result<()> {
    let bytes = call.cast(&w.bytes, ACL_FLOAT)?;
    let (high, low) = (call.temporary(ACL_FLOAT, &bytes.ne)?, call.temporary(ACL_FLOAT, &bytes.ne)?);
    call.scale(&bytes, 1.0 / 16.0, &high)?;
    call.floor(&high, &high)?;
    call.scale(&high, -16.0, &low)?;
    call.add(&bytes, &low, &low)?;
    call.shift(&low, -7.0, &bytes)?;
    call.clamp(&bytes, 0.0, 1.0, &bytes)?;
    call.scale(&bytes, -16.0, &bytes)?;
    call.add(&low, &bytes, &low)?;
    call.copy(&low, &y.every(w.along, 0, 2))?;
    call.copy(&high, &y.every(w.along, 1, 2))
}
