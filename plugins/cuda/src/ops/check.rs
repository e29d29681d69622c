//! What `supports` requires of operands; the first unmet requirement is the answer.

use crate::layout;
use llmrt_plugin::{DType, NodeView, Op, Reason, TensorView};

/// Yes, or why not.
pub type Answer = Result<(), Reason>;

/// The sources that the op needs are there, all operands are in GGUF's layout at whole multiples of their elements, and
/// an op without params has none.
pub fn form(node: &NodeView<'_>) -> Answer {
    let info = node.op().ok_or(Reason::Op)?.info();
    (0..info.min_src as usize).try_for_each(|i| given(node, i).map(|_| ()))?;
    let known = !info.params.is_empty() || node.params_bytes().iter().all(|byte| *byte == 0);
    ensure(known, Reason::Param)?;
    let mut operands = (0..node.n_src()).filter_map(|i| node.src(i)).chain([node.dst()]);
    operands.try_for_each(|t| aligned(&t))?;
    layouts(node)
}

/// Only products and picked rows read a sealed weight, their first source, and only in whole rows.
pub fn layouts(node: &NodeView<'_>) -> Answer {
    let reads = matches!(node.op(), Some(Op::MulMat | Op::MulMatId | Op::GetRows));
    let known = |i: usize, t: &TensorView<'_>| {
        let is_whole = || t.dtype().is_some_and(|dtype| layout::are_eights(dtype, t.ne()[0]));
        t.layout_id() == 0 || (reads && i == 0 && t.layout_id() == layout::EIGHTS && is_whole())
    };
    let mut sources = (0..node.n_src()).filter_map(|i| Some((i, node.src(i)?)));
    let all = sources.all(|(i, t)| known(i, &t)) && node.dst().layout_id() == 0;
    ensure(all, Reason::Layout)
}

/// A chip reads a number only at a multiple of its size; blocks start at even addresses, or anywhere.
fn aligned(t: &TensorView<'_>) -> Answer {
    let info = t.dtype().ok_or(Reason::Type)?.info();
    let size = match info.block_elems {
        1 => info.block_bytes as usize,
        _ if info.block_bytes % 2 == 0 => 2,
        _ => 1,
    };
    let mut dims = t.ne().into_iter().zip(t.nb());
    let even = dims.all(|(n, nb)| n <= 1 || nb.is_multiple_of(size));
    ensure(t.n_elements() == 0 || (even && t.offset().is_multiple_of(size as u64)), Reason::Stride)
}

/// Source `i`, which must be there.
pub fn given<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    node.src(i).ok_or(Reason::Op)
}

/// Whether it is F32, F16 or BF16.
pub fn is_number(t: &TensorView<'_>) -> bool {
    matches!(t.dtype(), Some(DType::F32 | DType::F16 | DType::BF16))
}

/// Source `i`: F32, F16 or BF16, at any strides.
pub fn numbers<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    ensure(is_number(&t), Reason::Type)?;
    Ok(t)
}

/// Source `i`: of this dtype, at any strides.
pub fn of<'a>(node: &NodeView<'a>, i: usize, dtype: DType) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    ensure(t.dtype() == Some(dtype), Reason::Type)?;
    Ok(t)
}

/// Source `i` if it is there: of this dtype, at any strides.
pub fn optional<'a>(node: &NodeView<'a>, i: usize, dtype: DType) -> Result<Option<TensorView<'a>>, Reason> {
    node.src(i).map(|_| of(node, i, dtype)).transpose()
}

/// Elements of dim 0 follow each other.
pub fn dense_rows(t: &TensorView<'_>) -> Answer {
    let dtype = t.dtype().ok_or(Reason::Type)?;
    ensure(t.ne()[0].is_multiple_of(dtype.block_elems()), Reason::Shape)?;
    ensure(t.nb()[0] == dtype.block_bytes() || t.ne()[0] <= dtype.block_elems(), Reason::Stride)
}

/// The result: of this dtype and shape.
pub fn result(node: &NodeView<'_>, dtype: Option<DType>, ne: [usize; 4]) -> Answer {
    let dst = node.dst();
    ensure(dst.dtype() == dtype, Reason::Type)?;
    ensure(dst.ne() == ne, Reason::Shape)
}

/// A vector of `n` elements.
pub fn vector(t: &TensorView<'_>, n: usize) -> Answer {
    ensure(t.ne() == [n, 1, 1, 1], Reason::Shape)
}

/// The op's params, or that they are newer than this code.
pub fn params<P>(read: Option<P>) -> Result<P, Reason> {
    read.ok_or(Reason::Param)
}

/// `condition`, or this reason.
pub fn ensure(condition: bool, reason: Reason) -> Answer {
    if condition { Ok(()) } else { Err(reason) }
}
