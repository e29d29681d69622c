//! What `supports` requires of operands; the first unmet requirement is the answer.

use crate::chip::Chip;
use crate::layout::{self, F16, INT4, INT8};
use crate::operand::{element_bytes, number};
use llmrt_plugin::{DType, NodeView, Op, Reason, TensorView};

/// Yes, or why not.
pub type Answer = Result<(), Reason>;

/// The sources that the op needs are there, all operands are where cards can address them, in layouts of this plugin,
/// and there are no params that this code does not support.
pub fn form(node: &NodeView<'_>) -> Answer {
    let info = node.op().ok_or(Reason::Op)?.info();
    (0..info.min_src as usize).try_for_each(|i| given(node, i).map(|_| ()))?;
    let known = !info.params.is_empty() || node.params_bytes().iter().all(|byte| *byte == 0);
    ensure(known, Reason::Param)?;
    let mut operands = (0..node.n_src()).filter_map(|i| node.src(i)).chain([node.dst()]);
    operands.try_for_each(|t| {
        ensure(is_taken_by(node.op(), t.layout_id()), Reason::Layout)?;
        // Blocks have F16 scales.
        let size = t.dtype().and_then(number).map_or(2, element_bytes);
        ensure(t.n_elements() == 0 || t.offset().is_multiple_of(size as u64), Reason::Stride)
    })
}

/// Whether an op takes a layout: what is not rows one after the other is for products alone.
fn is_taken_by(op: Option<Op>, layout: u32) -> bool {
    match layout {
        0 | INT4 | INT8 | F16 => true,
        layout::INT4_EXPERTS => matches!(op, Some(Op::MulMat | Op::MulMatId)),
        layout::NZ | layout::INT4_COLUMNS | layout::INT8_COLUMNS => op == Some(Op::MulMat),
        _ => false,
    }
}

/// Source `i`, which must be there.
pub fn given<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    node.src(i).ok_or(Reason::Op)
}

/// Source `i`: F32, F16, or BF16 where the chip has it, at any strides of whole elements.
pub fn floats<'a>(chip: &Chip, node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    let is_float = match t.dtype() {
        Some(DType::F32 | DType::F16) => true,
        Some(DType::BF16) => chip.bf16,
        _ => false,
    };
    ensure(is_float, Reason::Type)?;
    whole_strides(&t)?;
    Ok(t)
}

/// Source `i`: I32 or I64.
pub fn ints<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    ensure(matches!(t.dtype(), Some(DType::I32 | DType::I64)), Reason::Type)?;
    whole_strides(&t)?;
    Ok(t)
}

/// The op's params, or that they are newer than this code.
pub fn params<P>(read: Option<P>) -> Result<P, Reason> {
    read.ok_or(Reason::Param)
}

/// The result: of this dtype and shape.
pub fn result(node: &NodeView<'_>, dtype: Option<DType>, ne: [usize; 4]) -> Answer {
    let dst = node.dst();
    ensure(dst.dtype() == dtype, Reason::Type)?;
    ensure(dst.ne() == ne, Reason::Shape)?;
    whole_strides(&dst)
}

/// The result: F32, or another float dtype that is converted to.
pub fn float_result(chip: &Chip, node: &NodeView<'_>, ne: [usize; 4]) -> Answer {
    let dtype = node.dst().dtype();
    let known = matches!(dtype, Some(DType::F32 | DType::F16)) || (chip.bf16 && dtype == Some(DType::BF16));
    ensure(known, Reason::Type)?;
    result(node, dtype, ne)
}

/// Strides of whole elements, in the file's own layout.
pub fn whole_strides(t: &TensorView<'_>) -> Answer {
    let size = t.dtype().and_then(number).map_or(0, element_bytes) as usize;
    ensure(size > 0, Reason::Type)?;
    ensure(t.layout_id() == 0, Reason::Layout)?;
    ensure(t.nb().iter().all(|nb| nb.is_multiple_of(size)), Reason::Stride)
}

/// `condition`, or this reason.
pub fn ensure(condition: bool, reason: Reason) -> Answer {
    if condition { Ok(()) } else { Err(reason) }
}
