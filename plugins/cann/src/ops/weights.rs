//! What a product multiplies with: plain matrices, sealed ones, or blocks of the file; and the product itself.

use super::check::{self, Answer, ensure};
use super::packed::Packed;
use super::sealed::{self, Sealed};
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::layout::{self, GROUP};
use crate::library::Cann;
use crate::operand::Operand;
use crate::ops::steps::has;
use crate::sys::*;
use llmrt_plugin::{DType, Reason, Result, TensorView};

/// Matrices that an op goes through one by one at most.
pub const MAX_BATCHES: usize = 256;

/// Elements and rows that a product with 4- or 8-bit weights takes.
const MAX_ROW: i64 = 65_535;

/// Elements of a weight that are converted at a time: 64 MiB of F32.
const PIECE: i64 = 1 << 24;

/// Matrices [k, m, …] on the card.
#[derive(Clone, Debug)]
pub enum Weights {
    /// As in the file.
    Plain(Operand),
    /// One matrix of F16 in blocks (FRACTAL_NZ).
    Nz(Operand),
    /// Values, then scales.
    Sealed(Sealed),
    /// Blocks of the file.
    Packed(Packed),
}

/// Whether a tensor's dtype is quantised.
pub fn is_quantised(t: &TensorView<'_>) -> bool {
    t.dtype().is_some_and(DType::is_quantised)
}

/// What the numbers of quantised weights are computed with, in any layout.
pub fn can_decode(cann: &Cann, t: &TensorView<'_>) -> Answer {
    has!(cann, math.aclnnCast, math.aclnnMuls, math.aclnnAdds, math.aclnnAdd, math.aclnnSub, math.aclnnMul)?;
    has!(cann, math.aclnnFloor, math.aclnnClamp, math.aclnnInplaceCopy, math.aclnnInplaceFillScalar)?;
    ensure(Packed::reads(t), Reason::Type)
}

/// Whether products with a weight can be had.
pub fn supports(cann: &Cann, chip: &Chip, w: &TensorView<'_>) -> Answer {
    has!(cann, nn.aclnnMm, nn.aclnnMatmul, math.aclnnCast, math.aclnnInplaceCopy)?;
    has!(cann, math.aclnnSub, math.aclnnMuls, math.aclnnAdd)?;
    if is_quantised(w) {
        return can_decode(cann, w);
    }
    let dtype = w.dtype();
    let plain = matches!(dtype, Some(DType::F32 | DType::F16)) || (chip.bf16 && dtype == Some(DType::BF16));
    ensure(plain, Reason::Type)?;
    if w.layout_id() == layout::NZ { Ok(()) } else { check::whole_strides(w) }
}

impl Weights {
    /// A source of a product.
    pub fn of(t: &TensorView<'_>) -> Result<Weights> {
        if let Some(sealed) = Sealed::of(t)? {
            return Ok(Weights::Sealed(sealed));
        }
        if t.layout_id() == layout::NZ {
            return Ok(Weights::Nz(Operand::halves(t)?.flat(2)));
        }
        Ok(match Packed::of(t)? {
            Some(packed) if t.layout_id() == 0 => Weights::Packed(packed),
            Some(_) => Weights::Plain(Operand::halves(t)?),
            None => Weights::Plain(Operand::of(t)?),
        })
    }

    /// `n` rows from `start` on, of one matrix [k, m]; blocks are never parted.
    pub fn rows(&self, start: i64, n: i64) -> Weights {
        match self {
            Weights::Nz(w) => Weights::Nz(w.clone()),
            Weights::Plain(w) => Weights::Plain(w.slice(1, start, n)),
            Weights::Sealed(w) => Weights::Sealed(w.part(start, n)),
            Weights::Packed(w) => Weights::Packed(w.part(start, n)),
        }
    }

    /// y [m, n] = Σ over k of w [k, m] · x [k, n]; any dtypes and strides of x and y.
    pub fn times(&self, call: &mut Call<'_>, x: &Operand, y: &Operand) -> Result<()> {
        let as_they_are = self.goes_in_groups(call) || self.is_bf16() || matches!(self, Weights::Nz(_));
        if as_they_are && call.attempt(|call| self.times_as(call, x, y, true))? {
            return Ok(());
        }
        self.times_as(call, x, y, false)
    }

    /// The same, `as_they_are`: by the operator for such weights, instead of decoded or as F32.
    fn times_as(&self, call: &mut Call<'_>, x: &Operand, y: &Operand, as_they_are: bool) -> Result<()> {
        let (k, m) = (x.ne[0], y.ne[0]);
        let (inside, most) = match self {
            Weights::Plain(w) if w.dtype == ACL_BF16 && !as_they_are => (ACL_FLOAT, (PIECE / k).max(1)),
            Weights::Plain(w) if w.dtype == ACL_FLOAT && !call.stream.chip.f32_products => {
                (ACL_FLOAT, (PIECE / k).max(1))
            }
            // Two F32 sums per result.
            Weights::Plain(w) if w.dtype == ACL_BF16 => (ACL_FLOAT, (PIECE / (2 * y.ne[1])).max(1)),
            Weights::Plain(_) => (ACL_FLOAT, m),
            Weights::Nz(_) => (if as_they_are { ACL_FLOAT16 } else { ACL_FLOAT }, m),
            Weights::Packed(_) => (ACL_FLOAT, (PIECE / k).max(1)),
            Weights::Sealed(_) if as_they_are => (ACL_FLOAT16, MAX_ROW / 32 * 32),
            // Even, because of two values in a byte.
            Weights::Sealed(_) => (ACL_FLOAT16, (PIECE / k).max(2) / 2 * 2),
        };
        let x = call.dense(x, inside)?;
        // The operator for 4 and 8-bit weights has F16 results, others F32 ones of F16 numbers.
        let in_groups = as_they_are && matches!(self, Weights::Sealed(_));
        let result = if in_groups { inside } else { ACL_FLOAT };
        for (start, n) in pieces(m, most) {
            call.scoped(|call| {
                let part = y.slice(0, start, n);
                let placed = call.place(&part, result)?;
                match self.rows(start, n) {
                    Weights::Plain(w) if as_they_are => call.product_with_bf16(&w, &x, &placed)?,
                    Weights::Plain(w) => {
                        let w = call.to(&w, if w.dtype == ACL_BF16 { ACL_FLOAT } else { w.dtype })?;
                        call.product(&w, &x, &placed)?;
                    }
                    Weights::Nz(w) if as_they_are => call.product_with_nz(&w, &x, &placed)?,
                    Weights::Nz(w) => {
                        let plain = call.temporary(ACL_FLOAT16, &[k, n])?;
                        from_blocks(call, &w, &plain)?;
                        call.product(&plain, &x, &placed)?;
                    }
                    Weights::Packed(w) => {
                        let plain = call.temporary(inside, &[k, n])?;
                        w.decode(call, &plain)?;
                        call.product(&plain, &x, &placed)?;
                    }
                    Weights::Sealed(w) if as_they_are => in_groups_of_32(call, &w, &x, &placed)?,
                    Weights::Sealed(w) => {
                        let plain = call.temporary(inside, &[k, n])?;
                        sealed::decode(call, &w, &plain)?;
                        call.product(&plain, &x, &placed)?;
                    }
                }
                call.store(&placed, &part)
            })?;
        }
        Ok(())
    }

    fn is_bf16(&self) -> bool {
        matches!(self, Weights::Plain(w) if w.dtype == ACL_BF16)
    }

    /// Whether there are products with such weights.
    pub fn goes_in_groups(&self, call: &Call<'_>) -> bool {
        let has = call.stream.runtime.cann.nn.aclnnWeightQuantBatchMatmulV2.plan.is_some();
        let Weights::Sealed(w) = self else { return false };
        has && w.k() <= MAX_ROW
    }
}

/// y [k, m] = a matrix in blocks of 16 rows and 16 columns, blocks of a column of blocks first.
fn from_blocks(call: &mut Call<'_>, w: &Operand, y: &Operand) -> Result<()> {
    let (block, [k, m]) = (layout::NZ_BLOCK as i64, [y.ne[0], y.ne[1]]);
    let rows = w.reshape(&[block, m, k / block]).permute(&[0, 2, 1]);
    call.copy(&rows, &y.reshape(&[block, k / block, m]))
}

/// The vendor's product with weights of few bits, F16 in and out; the weight is a matrix turned around, which is one without
/// gaps where columns are stored.
pub fn in_groups_of_32(call: &mut Call<'_>, w: &Sealed, x: &Operand, y: &Operand) -> Result<()> {
    let turned = |t: &Operand| t.flat(2).permute(&[1, 0]);
    // A single group is no group for the library, but a scale per row.
    let group = if w.k() > GROUP as i64 { GROUP as i32 } else { 0 };
    let scales = turned(&w.scales);
    let scales = if group == 0 { scales.reshape(&scales.ne.clone()) } else { scales };
    let none = std::ptr::null();
    let (x, w, scales) = (call.tensor(x)?, call.tensor(&turned(&w.values()))?, call.tensor(&scales)?);
    let y = call.tensor(y)?;
    run!(call, nn.aclnnWeightQuantBatchMatmulV2(x, w, scales, none, none, none, none, group, y))
}

/// Starts and lengths of pieces of at most `most`; none is empty.
fn pieces(n: i64, most: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..n).step_by(most as usize).map(move |start| (start, most.min(n - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_weights_fall_into_pieces_of_which_none_is_empty() {
        let of = |n, most| pieces(n, most).collect::<Vec<_>>();
        assert_eq!(of(151_936, 65_504), [(0, 65_504), (65_504, 65_504), (131_008, 20_928)]);
        assert_eq!(of(131_008, 65_504), [(0, 65_504), (65_504, 65_504)]);
        assert_eq!(of(5, 65_504), [(0, 5)]);
    }
}
