//! What `supports` checks of operands; the first failing check gives the reason.

use llmrt_plugin::{DType, NodeView, Reason, TensorView};

/// Yes, or why not.
pub type Answer = Result<(), Reason>;

/// Source `i`, which must be there.
pub fn given<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    node.src(i).ok_or(Reason::Op)
}

/// Source `i`: F32 with dense rows.
pub fn floats<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    of_dtype(given(node, i)?, DType::F32)
}

/// Source `i` if it is there: F32 with dense rows.
pub fn optional_floats<'a>(node: &NodeView<'a>, i: usize) -> Result<Option<TensorView<'a>>, Reason> {
    node.src(i).map(|t| of_dtype(t, DType::F32)).transpose()
}

/// Source `i`: F32, F16 or BF16 at any strides. [`super::rows::read`] reads it.
pub fn numbers<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    ensure(matches!(t.dtype(), Some(DType::F32 | DType::F16 | DType::BF16)), Reason::Type)?;
    Ok(t)
}

/// Source `i`: F32 at any strides. [`super::rows::read`] reads it.
pub fn any_floats<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    any_of(node, i, DType::F32)
}

/// Source `i`: I32 at any strides. [`crate::tensor::Tensor::int`] reads it.
pub fn any_ints<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    any_of(node, i, DType::I32)
}

fn any_of<'a>(node: &NodeView<'a>, i: usize, dtype: DType) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    ensure(t.dtype() == Some(dtype), Reason::Type)?;
    ensure(t.layout_id() == 0, Reason::Layout)?;
    Ok(t)
}

/// Source `i`: I32 with dense rows.
pub fn ints<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    of_dtype(given(node, i)?, DType::I32)
}

/// Source `i`: a dtype that rows of f32 can be made of, dense rows.
pub fn decodable<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    let dtype = t.dtype().filter(|&d| super::rows::can_decode(d)).ok_or(Reason::Type)?;
    whole_rows(&t, dtype)?;
    Ok(t)
}

/// Source `i`: F32, F16 or BF16 at any strides, or as [`decodable`].
pub fn matrix<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    numbers(node, i).or_else(|_| decodable(node, i))
}

/// The result: of this dtype and shape, without gaps.
pub fn result(node: &NodeView<'_>, dtype: DType, ne: [usize; 4]) -> Answer {
    let dst = node.dst();
    ensure(dst.dtype() == Some(dtype), Reason::Type)?;
    ensure(dst.ne() == ne, Reason::Shape)?;
    ensure(dst.is_contiguous(), Reason::Stride)
}

/// No two blocks of a tensor share bytes, so that threads may write different ones.
pub fn blocks_share_no_bytes(t: &TensorView<'_>) -> Answer {
    let (ne, nb, dtype) = (t.ne(), t.nb(), t.dtype().ok_or(Reason::Type)?);
    if ne.contains(&0) {
        return Ok(());
    }
    let mut dims = [(nb[0], ne[0] / dtype.block_elems()), (nb[1], ne[1]), (nb[2], ne[2]), (nb[3], ne[3])];
    dims.sort_unstable();
    let mut span = dtype.block_bytes();
    for (step, n) in dims.into_iter().filter(|(_, n)| *n > 1) {
        ensure(step >= span, Reason::Stride)?;
        span = step.saturating_mul(n - 1).saturating_add(span);
    }
    Ok(())
}

/// A vector of `n` elements.
pub fn vector(t: &TensorView<'_>, n: usize) -> Answer {
    ensure(t.ne() == [n, 1, 1, 1], Reason::Shape)
}

/// The product of dims, if it is one.
pub fn product(dims: &[usize]) -> Result<usize, Reason> {
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or(Reason::Shape)
}

/// The params struct, if nothing newer than this build is in it.
pub fn params<P>(read: Option<P>) -> Result<P, Reason> {
    read.ok_or(Reason::Param)
}

/// `condition`, or this reason.
pub fn ensure(condition: bool, reason: Reason) -> Answer {
    if condition { Ok(()) } else { Err(reason) }
}

fn of_dtype(t: TensorView<'_>, dtype: DType) -> Result<TensorView<'_>, Reason> {
    ensure(t.dtype() == Some(dtype), Reason::Type)?;
    whole_rows(&t, dtype)?;
    Ok(t)
}

fn whole_rows(t: &TensorView<'_>, dtype: DType) -> Answer {
    ensure(t.ne()[0].is_multiple_of(dtype.block_elems()), Reason::Shape)?;
    ensure(t.nb()[0] == dtype.block_bytes() || t.ne()[0] <= dtype.block_elems(), Reason::Stride)
}
