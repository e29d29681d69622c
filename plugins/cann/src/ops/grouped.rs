//! Experts' products in one operator: rows sorted by expert, each group of rows times the matrix of its expert.
//!
//! The operator takes the number of rows of each expert, on the card: ids are compared with the experts' numbers and
//! counted. Experts of no row are not read.

use super::ids::Ids;
use super::weights::Weights;
use crate::call::{Call, Key, run};
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::Result;

/// What the operator takes.
const MAX_EXPERTS: i64 = 1024;
const MAX_IN_ROW: i64 = 65_535;

/// Rows go to one output, split by rows, and counts hold how many an expert has.
const ONE_OUTPUT: i64 = 3;
const BY_ROWS: i64 = 0;
const COUNTS: i64 = 1;

/// Experts' matrices [k, m, n].
pub struct Groups<'a> {
    pub w: &'a Weights,
    pub k: i64,
    pub m: i64,
    pub n: i64,
}

impl Groups<'_> {
    /// Whether the operator multiplies with these.
    pub fn fit(&self, call: &Call<'_>) -> bool {
        let cann = &call.stream.runtime.cann;
        let has =
            cann.transformer.aclnnGroupedMatmulV4.plan.is_some() && cann.math.aclnnArgsort.plan.is_some();
        let of_format = match self.w {
            Weights::Plain(w) => w.dtype == ACL_FLOAT16 && w.flat(3).is_contiguous(),
            Weights::Sealed(w) => w.int4,
            Weights::Packed(_) | Weights::Nz(_) => false,
        };
        let small = self.k.max(self.m) <= MAX_IN_ROW && self.n <= MAX_EXPERTS;
        has && of_format && small
    }

    /// y [m, used, tokens] from x [k, 1 or used, tokens]; zeros for ids that are out of range.
    pub fn times(&self, call: &mut Call<'_>, x: &Operand, ids: &Ids, y: &Operand) -> Result<()> {
        let (used, tokens, per_token) = (y.ne[1], y.ne[2], x.ne[1]);
        let n = used * tokens;
        let id = call.cast(&ids.index, ACL_FLOAT)?.reshape(&[n]);
        let (order, counts) = (sorted(call, &id)?, self.counts(call, &id)?);
        let places = call.cast(&order, ACL_FLOAT)?;
        let back = sorted(call, &places)?;

        let x = call.dense(x, ACL_FLOAT16)?.reshape(&[self.k, per_token * tokens]);
        let rows = match per_token == used {
            true => order,
            false => {
                // The token of place p: the middle of p and p + 1 keeps the division away from whole numbers.
                call.affine(&places, 1.0 / used as f32, 0.5 / used as f32, &places)?;
                call.floor(&places, &places)?;
                call.cast(&places, ACL_INT32)?
            }
        };
        let rows = call.picked(&x, 1, &rows)?;
        let results = call.temporary(ACL_FLOAT16, &[self.m, n])?;
        self.launch(call, &rows, &counts, &results)?;
        let results = call.picked(&results, 1, &back)?;
        let results = call.cast(&results, ACL_FLOAT)?.reshape(&y.ne);
        call.mul(&results, &ids.valid.with_dim(0), y)
    }

    /// I64 [experts]: rows of each.
    fn counts(&self, call: &mut Call<'_>, id: &Operand) -> Result<Operand> {
        let numbers = call.temporary(ACL_FLOAT, &[self.n])?;
        call.count(0.0, 1.0, &numbers)?;
        let same = call.temporary(ACL_FLOAT, &[id.ne[0], self.n])?;
        call.sub(id, &numbers.with_dim(0), &same)?;
        call.abs(&same, &same)?;
        call.clamp(&same, 0.0, 1.0, &same)?;
        call.affine(&same, -1.0, 1.0, &same)?;
        let counts = call.temporary(ACL_FLOAT, &[1, self.n])?;
        call.sum(&same, 0, &counts)?;
        call.cast(&counts.reshape(&[self.n]), ACL_INT64)
    }

    /// Makes what the operator needs and all products with such experts share, before anything is computed.
    pub fn prepare(&self, call: &mut Call<'_>) -> Result<()> {
        let has_scales = matches!(self.w, Weights::Sealed(_)) && self.fit(call);
        if has_scales { self.offsets(call).map(|_| ()) } else { Ok(()) }
    }

    /// Offsets there must be, although Q4_0 has none: y = x · (value + offset) · scale. They are as many as scales, so one
    /// tensor of zeros is filled per graph and not per product.
    fn offsets(&self, call: &mut Call<'_>) -> Result<Operand> {
        let ne = [self.m, self.k / crate::layout::GROUP as i64, self.n];
        let key = Key("no offsets", vec![], ne.map(i64::to_ne_bytes).concat());
        call.shared(key, ACL_FLOAT16, &ne, |call, zeros| call.fill(zeros, 0.0))
    }

    /// y [m, n] from x [k, n], rows of experts one after the other.
    fn launch(&self, call: &mut Call<'_>, x: &Operand, counts: &Operand, y: &Operand) -> Result<()> {
        let turned = |t: &Operand| t.permute(&[1, 0, 2]);
        let (weight, scaling) = match self.w {
            Weights::Sealed(w) => {
                // Those of a group beside each other, as they are stored.
                let scales = call.dense(&turned(&w.scales), ACL_FLOAT16)?;
                (w.values(), Some((scales, self.offsets(call)?)))
            }
            Weights::Plain(w) => (w.flat(3), None),
            _ => return Err(llmrt_plugin::Error::unsupported("groups of packed experts")),
        };
        let mut list = |t: &Operand| call.tensors(std::slice::from_ref(t)).map(|t| t.cast_const());
        let none = std::ptr::null();
        let (x, w, y) = (list(x)?, list(&turned(&weight))?, list(y)?);
        let (scales, offsets) = match scaling {
            Some((scales, offsets)) => (list(&scales)?, list(&offsets)?),
            None => (none, none),
        };
        let counts = call.tensor(counts)?;
        let no_result = std::ptr::null();
        run!(
            call,
            transformer.aclnnGroupedMatmulV4(
                x, w, none, none, none, scales, offsets, none, counts, none, none, none, ONE_OUTPUT, BY_ROWS,
                COUNTS, 0, y, no_result, no_result
            )
        )
    }
}

/// I64: the places of the numbers in ascending order; equal ones in any. One number is not sorted: the library does that on the
/// card's CPU.
fn sorted(call: &mut Call<'_>, numbers: &Operand) -> Result<Operand> {
    let order = call.temporary(ACL_INT64, &numbers.ne)?;
    if numbers.ne == [1] {
        call.fill(&order, 0.0)?;
        return Ok(order);
    }
    let (x, y) = (call.tensor(numbers)?, call.tensor(&order)?);
    run!(call, math.aclnnArgsort(x, -1, false, y))?;
    Ok(order)
}
