//! y = a with a block of it replaced by b; the block has the shape of b and starts at the element that the params name.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::BlockParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(BlockParams::from_bytes(node.params_bytes()))?;
    let (a, b) = (check::given(node, 0)?, check::given(node, 1)?);
    let dtype = a.dtype().ok_or(Reason::Type)?;
    ensure(matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32), Reason::Type)?;
    ensure(b.dtype() == Some(dtype), Reason::Type)?;
    ensure(a.layout_id() == 0 && b.layout_id() == 0, Reason::Layout)?;
    fits(&p, a.ne(), b.ne())?;
    check::result(node, dtype, a.ne())
}

pub fn compute(_: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let p = args.params(BlockParams::from_bytes);
    let (a, b) = (args.arg(0), args.arg(1));
    let size = args.dst.dtype.block_bytes();
    for (at, part, y) in out.pieces() {
        let y = y.bytes();
        copy(a, at, part.clone(), y);
        let (at_b, in_b, in_part) = overlap(&p, b, at, &part);
        copy(b, at_b, in_b, &mut y[in_part.start * size..in_part.end * size]);
    }
}

/// Whether a block of shape `b` that starts there is inside `a`.
pub fn fits(p: &BlockParams, a: [usize; 4], b: [usize; 4]) -> Answer {
    let start = start(p);
    let fits = |d: usize| b[d].checked_add(start[d]).is_some_and(|end| end <= a[d]);
    ensure((0..4).all(fits), Reason::Shape)
}

/// What of the row of the result at these indices, elements `part`, is inside the block: the row of b, its elements, and
/// their places in the part. The ranges are empty if nothing does.
pub fn overlap(
    p: &BlockParams,
    b: &Tensor,
    at: [usize; 3],
    part: &Range<usize>,
) -> ([usize; 3], Range<usize>, Range<usize>) {
    let [start0, outer @ ..] = start(p);
    let mut at_b = [0; 3];
    for d in 0..3 {
        match at[d].checked_sub(outer[d]).filter(|i| *i < b.ne[d + 1]) {
            Some(i) => at_b[d] = i,
            None => return ([0; 3], 0..0, 0..0),
        }
    }
    let (first, end) = (part.start.max(start0), part.end.min(start0 + b.ne[0]));
    if first >= end {
        return ([0; 3], 0..0, 0..0);
    }
    (at_b, first - start0..end - start0, first - part.start..end - part.start)
}

fn start(p: &BlockParams) -> [usize; 4] {
    [p.start0, p.start1, p.start2, p.start3].map(|n| n as usize)
}

/// Elements `part` of the row at these indices, as they are.
fn copy(t: &Tensor, at: [usize; 3], part: Range<usize>, out: &mut [u8]) {
    if part.is_empty() {
        return;
    }
    let size = t.dtype.block_bytes();
    let bytes = &t.bytes()[t.offset_of(at) + part.start * t.nb[0]..];
    if t.nb[0] == size {
        return out.copy_from_slice(&bytes[..out.len()]);
    }
    for (i, out) in out.chunks_exact_mut(size).enumerate() {
        out.copy_from_slice(&bytes[i * t.nb[0]..][..size]);
    }
}
