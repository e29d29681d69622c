//! argsort and top_k: I32 indices of each row's elements in order; equal elements keep the lower index first.
//!
//! The library's sort leaves the order of equal elements undefined. So each element's place is counted: those that come
//! before it, which are the larger ones and the equal ones with a lower index. For short rows, as routers have them.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, Key};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::{ArgsortParams, TopKParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

/// Elements of a row.
const LONGEST: usize = 1024;
/// Pairs that are compared at a time.
const MAX_PAIRS: i64 = 1 << 24;
/// Elements are at most this far from 0 when they are compared, so that differences of infinities are numbers.
const FAR: f32 = 3e38;

/// How many are kept of a row, and whether the largest come first.
fn kept(node: &NodeView<'_>, n: usize) -> std::result::Result<(usize, bool), Reason> {
    match node.op() {
        Some(Op::TopK) => Ok((check::params(TopKParams::from_bytes(node.params_bytes()))?.k as usize, true)),
        _ => Ok((n, check::params(ArgsortParams::from_bytes(node.params_bytes()))?.descending == 1)),
    }
}

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnSub, math.aclnnSign, math.aclnnAdd, math.aclnnClamp, math.aclnnReduceSum)?;
    has!(cann, math.aclnnAbs, math.aclnnArgMax, math.aclnnArange, math.aclnnMuls, math.aclnnAdds)?;
    has!(cann, math.aclnnCast, math.aclnnInplaceCopy)?;
    let x = check::floats(chip, node, 0)?;
    let [n, n1, n2, n3] = x.ne();
    let (k, _) = kept(node, n)?;
    ensure(n <= LONGEST && k > 0 && k <= n, Reason::Shape)?;
    check::result(node, Some(DType::I32), [k, n1, n2, n3])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let (n, rows) = (x.ne[0], x.n_elements() / x.ne[0]);
    let (k, largest_first) = kept(node, n as usize).unwrap_or_default();
    let placed = call.place(&y, ACL_INT32)?;
    let to = placed.reshape(&[k as i64, rows]);
    let x = call.dense(&x, ACL_FLOAT)?.reshape(&[n, rows]);
    let at_a_time = (MAX_PAIRS / (n * n)).max(1);
    for start in (0..rows).step_by(at_a_time as usize) {
        let n = at_a_time.min(rows - start);
        let part = |t: &Operand| t.slice(1, start, n);
        call.scoped(|call| order(call, &part(&x), largest_first, &part(&to)))?;
    }
    call.store(&placed, &y)
}

/// y [k, rows] from x [n, rows].
fn order(call: &mut Call<'_>, x: &Operand, largest_first: bool, y: &Operand) -> Result<()> {
    let (n, rows, k) = (x.ne[0], x.ne[1], y.ne[0]);
    let earlier = earlier(call, n)?;
    let near = call.temporary(ACL_FLOAT, &x.ne)?;
    call.clamp(x, -FAR, FAR, &near)?;
    let pairs = call.temporary(ACL_FLOAT, &[n, n, rows])?; // [other, one, row]
    let (other, one) = (near.with_dim(1), near.with_dim(0));
    match largest_first {
        true => call.sub(&other, &one, &pairs)?,
        false => call.sub(&one, &other, &pairs)?,
    }
    call.sign(&pairs, &pairs)?;
    call.add(&pairs, &earlier, &pairs)?;
    call.scale(&pairs, 2.0, &pairs)?;
    call.clamp(&pairs, 0.0, 1.0, &pairs)?;
    let places = call.temporary(ACL_FLOAT, &[1, n, rows])?;
    call.sum(&pairs, 0, &places)?;
    // Place p is taken by the element of which 1 - |place - p| is largest.
    let ranks = call.temporary(ACL_FLOAT, &[k])?;
    call.count(0.0, 1.0, &ranks)?;
    let taken = call.temporary(ACL_FLOAT, &[n, k, rows])?;
    call.sub(&places.reshape(&[n, 1, rows]), &ranks.with_dim(0), &taken)?;
    call.abs(&taken, &taken)?;
    call.affine(&taken, -1.0, 1.0, &taken)?;
    call.arg_max(&taken, 0, &y.with_dim(0))
}

/// [n, n]: ½ where the first index is lower than the second, else 0.
fn earlier(call: &mut Call<'_>, n: i64) -> Result<Operand> {
    let key = Key("earlier", vec![], n.to_ne_bytes().to_vec());
    call.shared(key, ACL_FLOAT, &[n, n], |call, y| {
        let index = call.temporary(ACL_FLOAT, &[n])?;
        call.count(0.0, 1.0, &index)?;
        call.sub(&index.with_dim(0), &index, y)?;
        call.clamp(y, 0.0, 1.0, y)?;
        call.scale(y, 0.5, y)
    })
}
