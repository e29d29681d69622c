//! y = softmax(x · scale + slope · mask) over rows, with one more score per head, the sink, if given.
//!
//! A row of which everything is masked gives zeros. The library would divide by zero there, so scores are at least
//! [`LOWEST`] and every row has one more, [`NOTHING`] without a sink: it takes nothing from a row that sees something,
//! and all of one that does not.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, Key};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::{MAX_DIMS, Operand};
use crate::sys::*;
use llmrt_plugin::abi::op::SoftMaxParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

/// What -inf becomes.
pub const LOWEST: f32 = -3e38;
/// A score above all that are masked and below all that are not.
pub const NOTHING: f32 = -1e30;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnSoftmax, math.aclnnMuls, math.aclnnAdd, math.aclnnClampMin, math.aclnnCast)?;
    has!(cann, math.aclnnArange, math.aclnnPowScalarTensor, math.aclnnInplaceCopy, math.aclnnMul)?;
    has!(cann, math.aclnnInplaceFillScalar)?;
    check::params(SoftMaxParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(chip, node, 0)?;
    if node.src(1).is_some() {
        let (x, m) = (x.ne(), check::floats(chip, node, 1)?.ne());
        let divides = m.iter().all(|n| *n > 0) && x[2] % m[2] == 0 && x[3] % m[3] == 0;
        ensure(m[0] == x[0] && m[1] >= x[1] && divides, Reason::Shape)?;
    }
    if node.src(2).is_some() {
        let sinks = check::floats(chip, node, 2)?;
        ensure(sinks.ne() == [x.ne()[2], 1, 1, 1], Reason::Shape)?;
    }
    check::result(node, Some(DType::F32), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = SoftMaxParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let slopes = match p.max_bias > 0.0 && node.src(1).is_some() {
        true => Some(slopes(call, x.ne[2], p.max_bias)?),
        false => None,
    };
    let x = call.to(&x, ACL_FLOAT)?;
    if node.n_src() < 2 || (node.src(1).is_none() && node.src(2).is_none()) {
        let scaled = call.temporary(ACL_FLOAT, &x.ne)?;
        call.scale(&x, p.scale, &scaled)?;
        let placed = call.place(&y, ACL_FLOAT)?;
        call.soft_max(&scaled, &placed)?;
        return call.store(&placed, &y);
    }
    let rows = Rows::new(call, &x.ne)?;
    call.scale(&x, p.scale, &rows.scores)?;
    if let Some(mask) = node.src(1) {
        let mask = Operand::of(&mask)?.slice(1, 0, x.ne[1]);
        add_mask(call, &rows.scores, &mask, slopes.as_ref())?;
    }
    match node.src(2) {
        Some(sinks) => {
            let sinks = Operand::of(&sinks)?.flat(1).with_dim(0).with_dim(0).with_dim(3);
            call.copy(&sinks, &rows.more)?;
        }
        None => call.fill(&rows.more, NOTHING)?,
    }
    let placed = rows.soft_max(call)?;
    call.copy(&placed, &y)
}

/// Scores with one more at the end of each row.
pub struct Rows {
    /// The scores, to be filled in.
    pub scores: Operand,
    /// The one more of each row, to be filled in.
    pub more: Operand,
    all: Operand,
}

impl Rows {
    /// For scores of these dims.
    pub fn new(call: &mut Call<'_>, ne: &[i64]) -> Result<Rows> {
        let mut longer = ne.to_vec();
        longer[0] += 1;
        let all = call.temporary(ACL_FLOAT, &longer)?;
        Ok(Rows { scores: all.slice(0, 0, ne[0]), more: all.slice(0, ne[0], 1), all })
    }

    /// Their shares, without that of the one more.
    pub fn soft_max(&self, call: &mut Call<'_>) -> Result<Operand> {
        call.at_least(&self.all, LOWEST, &self.all)?;
        let shares = call.temporary(ACL_FLOAT, &self.all.ne)?;
        call.soft_max(&self.all, &shares)?;
        Ok(shares.slice(0, 0, self.scores.ne[0]))
    }
}

/// scores += slope · mask; the mask repeats in dims 2 and 3.
fn add_mask(call: &mut Call<'_>, scores: &Operand, mask: &Operand, slopes: Option<&Operand>) -> Result<()> {
    let (mut scores, mut mask) = (scores.clone(), call.to(mask, ACL_FLOAT)?);
    let heads = |t: &Operand| t.with_dim(0).with_dim(0).with_dim(3);
    let mut slopes = slopes.map(heads);
    for dim in [3, 2] {
        let n = mask.ne[dim];
        if n != scores.ne[dim] && n != 1 {
            (scores, mask) = (scores.split(dim, n), mask.with_dim(dim + 1));
            slopes = slopes.map(|s| if s.ne[dim] == 1 { s.with_dim(dim + 1) } else { s.split(dim, n) });
        }
    }
    debug_assert!(scores.ne.len() <= MAX_DIMS);
    let Some(slopes) = slopes else { return call.add(&scores, &mask, &scores) };
    // -inf times a slope stays -inf: slopes are above 0.
    let joint: Vec<i64> = mask.ne.iter().zip(&slopes.ne).map(|(n, of_slopes)| *n.max(of_slopes)).collect();
    let biased = call.temporary(ACL_FLOAT, &joint)?;
    call.mul(&mask, &slopes, &biased)?;
    call.add(&scores, &biased, &scores)
}

/// ALiBi: 2^(-max_bias (h + 1) / n) for the largest power of two n of heads, odd terms of half the step for the others.
pub fn slopes(call: &mut Call<'_>, n_heads: i64, max_bias: f32) -> Result<Operand> {
    let numbers = [n_heads.to_ne_bytes().to_vec(), max_bias.to_ne_bytes().to_vec()].concat();
    call.shared(Key("slopes", vec![], numbers), ACL_FLOAT, &[n_heads], |call, slopes| {
        let n = 1i64 << n_heads.ilog2();
        let step = max_bias / n as f32;
        let exponents = call.temporary(ACL_FLOAT, &[n_heads])?;
        call.count(-step, -step, &exponents.slice(0, 0, n))?;
        if n < n_heads {
            call.count(-step / 2.0, -step, &exponents.slice(0, n, n_heads - n))?;
        }
        call.power_of(2.0, &exponents, slopes)
    })
}
