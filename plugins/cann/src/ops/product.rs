//! Matrix products, at the precision that operands require.

use crate::call::{Call, run};
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::Result;

/// What an F16 number may be off by, as a factor: F32 = F16 + F16 / this, to 22 bits.
const STEP: f32 = 2048.0;

/// Elements of a matrix from which a launch of its own costs less than the matrix as F32, written and read: about 5 µs at 1 TB/s.
const LARGE: i64 = 1 << 19;

/// The operands as they are.
const KEEP: i8 = 0;
/// Rounded to F16. Without F32 units only: with them the result is rounded as well.
const TO_F16: i8 = 2;

impl Call<'_> {
    /// y [m, n, …] = Σ over k of w [k, m, …] · x [k, n, …]; batches are equal or 1, y has no gaps. F32 rows are rounded to
    /// F16 for an F16 w, so numbers beyond 65504 become infinite; a BF16 w keeps 16 bits of them, and an F32 w all.
    pub fn product(&mut self, w: &Operand, x: &Operand, y: &Operand) -> Result<()> {
        if self.rounds(w, y) && y.ne[2..].iter().product::<i64>() > 1 && are_small([w, x, y]) {
            return self.scoped(|call| {
                let (w, x) = (call.to(w, ACL_FLOAT)?, call.to(x, ACL_FLOAT)?);
                call.product_as(&w, &x, y, KEEP)
            });
        }
        match (x.dtype, w.dtype, self.stream.chip.f32_products) {
            // Rounded here: the operator's own rounding would make the result F16, too.
            (ACL_FLOAT, ACL_FLOAT16, true) => self.scoped(|call| {
                let x = call.cast(x, ACL_FLOAT16)?;
                call.product_as(w, &x, y, KEEP)
            }),
            (ACL_FLOAT, ACL_FLOAT16, false) => self.product_as(w, x, y, TO_F16),
            (ACL_FLOAT, ACL_FLOAT, false) => self.product_of_parts(w, x, y),
            (ACL_FLOAT, ACL_BF16, _) => {
                if self.attempt(|call| call.product_with_bf16(w, x, y))? {
                    return Ok(());
                }
                self.scoped(|call| {
                    let w = call.cast(w, ACL_FLOAT)?;
                    call.product(&w, x, y)
                })
            }
            _ => self.product_as(w, x, y, KEEP),
        }
    }

    /// A BF16 w, read once: x becomes two BF16 numbers each, to 16 bits, beside each other as columns, whose F32 results are
    /// added.
    pub fn product_with_bf16(&mut self, w: &Operand, x: &Operand, y: &Operand) -> Result<()> {
        self.scoped(|call| {
            let n = x.ne[1];
            let columns = |t: &Operand| {
                let mut ne = t.ne.clone();
                ne[1] = 2 * n;
                ne
            };
            let both = call.temporary(ACL_BF16, &columns(x))?;
            let (near, far) = (both.slice(1, 0, n), both.slice(1, n, n));
            call.copy(x, &near)?;
            call.scoped(|call| {
                let rest = call.temporary(ACL_FLOAT, &x.ne)?;
                call.copy(&near, &rest)?;
                call.sub(x, &rest, &rest)?;
                call.copy(&rest, &far)
            })?;
            let sums = call.temporary(ACL_FLOAT, &columns(y))?;
            call.product_as(w, &both, &sums, KEEP)?;
            call.add(&sums.slice(1, 0, n), &sums.slice(1, n, n), y)
        })
    }

    /// A w [k, m] of F16 in blocks, with F16 rows.
    pub fn product_with_nz(&mut self, w: &Operand, x: &Operand, y: &Operand) -> Result<()> {
        let (w, x, y) = (self.blocks(w)?, self.tensor(x)?, self.tensor(y)?);
        run!(self, nn.aclnnMm(x, w, y, KEEP))
    }

    /// Without F32 units: both operands as two F16 numbers each, of which the product of the two small ones is left out.
    fn product_of_parts(&mut self, w: &Operand, x: &Operand, y: &Operand) -> Result<()> {
        self.scoped(|call| {
            let ((w, w_rest), (x, x_rest)) = (call.parts(w)?, call.parts(x)?);
            let rest = call.temporary(ACL_FLOAT, &y.ne)?;
            call.product_as(&w, &x_rest, &rest, TO_F16)?;
            call.product_as(&w_rest, &x, y, TO_F16)?;
            call.add(&rest, y, &rest)?;
            call.scale(&rest, 1.0 / STEP, &rest)?;
            call.product_as(&w, &x, y, TO_F16)?;
            call.add(y, &rest, y)
        })
    }

    /// F32 numbers that F16 has exactly, and what is missing times [`STEP`], which the operator rounds.
    fn parts(&mut self, t: &Operand) -> Result<(Operand, Operand)> {
        let near = self.cast(t, ACL_FLOAT16)?;
        let (exact, rest) = (self.cast(&near, ACL_FLOAT)?, self.temporary(ACL_FLOAT, &t.ne)?);
        self.sub(t, &exact, &rest)?;
        self.scale(&rest, STEP, &rest)?;
        Ok((exact, rest))
    }

    /// Whether the operator for several matrices rounds the results to w's type.
    fn rounds(&self, w: &Operand, y: &Operand) -> bool {
        let (stream, several) = (&self.stream, y.ne.len() > 2);
        several && w.dtype != ACL_FLOAT && stream.chip.f32_products && !stream.runtime.has_wide_products()
    }

    fn product_as(&mut self, w: &Operand, x: &Operand, y: &Operand, cube_math: i8) -> Result<()> {
        let rank = y.ne.len();
        if self.rounds(w, y) {
            let last = rank - 1;
            let of = |t: &Operand, i| t.slice(last, if t.ne[last] == 1 { 0 } else { i }, 1).flat(last);
            return (0..y.ne[last])
                .try_for_each(|i| self.product_as(&of(w, i), &of(x, i), &of(y, i), cube_math));
        }
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(0, 1);
        let (w, x, y) = (self.tensor(&w.permute(&axes))?, self.tensor(x)?, self.tensor(y)?);
        match rank {
            2 => run!(self, nn.aclnnMm(x, w, y, cube_math)),
            _ => run!(self, nn.aclnnMatmul(x, w, y, cube_math)),
        }
    }
}

/// Whether every operand's matrices are.
fn are_small(all: [&Operand; 3]) -> bool {
    all.iter().all(|t| t.ne[0] * t.ne[1] < LARGE)
}
