//! Elementwise work: pieces of rows as f32, whatever dtype and strides the operands have.

use super::{Args, Worker, rows};
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use std::ops::Range;

/// Writes `f(x)` over the result, for x of its shape. F32 with dense rows is read and written where it lies.
#[inline(always)]
pub fn map(w: &mut Worker<'_>, a: &Args, f: impl Fn(Isa, &[f32], &mut [f32])) {
    let x = a.arg(0);
    let isa = w.isa;
    for (row, part) in w.pieces(&a.dst) {
        let at = a.dst.unravel(row);
        let [room, of_y, ..] = &mut w.scratch.floats;
        let x = rows::read(isa, x, at, part.clone(), room_for(x, part.len(), room));
        // SAFETY: pieces are disjoint.
        unsafe { write(isa, &a.dst, at, part, of_y, |y| f(isa, x, y)) };
    }
}

/// Room for `n` elements that [`rows::read`] may have to make; none is needed for those it finds.
#[inline(always)]
pub fn room_for<'a>(t: &Tensor, n: usize, arena: &'a mut crate::scratch::Arena) -> &'a mut [f32] {
    let in_place = t.dtype == DType::F32 && t.nb[0] == 4;
    arena.take(if in_place { 0 } else { n })
}

/// Has `make` fill elements `part` of the row at these indices of the result: in place if it is F32, else by way of
/// the arena, converting.
///
/// # Safety
/// The tensor is the node's result, without gaps, and no other thread uses these elements.
#[inline(always)]
pub unsafe fn write(
    isa: Isa,
    dst: &Tensor,
    at: [usize; 3],
    part: Range<usize>,
    arena: &mut crate::scratch::Arena,
    make: impl FnOnce(&mut [f32]),
) {
    if dst.dtype == DType::F32 {
        // SAFETY: the caller's promise.
        return make(unsafe { dst.part_mut(at, part) });
    }
    let y = arena.take(part.len());
    make(y);
    // SAFETY: the caller's promise.
    unsafe { rows::write(isa, dst, at, part, y) };
}
