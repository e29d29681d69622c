//! Elementwise work: pieces of rows as f32, whatever dtype and strides the operands have.

use super::{Args, Worker, rows};
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use std::ops::Range;

/// Writes `f(x)` over the result, for x of its shape. F32 with dense rows is read and written in place.
#[inline(always)]
pub fn map(w: &mut Worker<'_>, a: &Args, f: impl Fn(Isa, &[f32], &mut [f32])) {
    let isa = w.isa;
    let [x, dst] = flattened([a.arg(0), &a.dst]);
    if x.has_f32_rows() {
        for (row, part) in w.pieces(&dst) {
            let at = dst.unravel(row);
            // SAFETY: pieces are disjoint.
            f(isa, &x.row(at)[part.clone()], unsafe { dst.part_mut(at, part) });
        }
        return;
    }
    for (row, part) in w.pieces(&dst) {
        let at = dst.unravel(row);
        let [room, of_y, ..] = &mut w.scratch.floats;
        let x = read(isa, &x, at, part.clone(), room);
        // SAFETY: pieces are disjoint.
        unsafe { write(isa, &dst, at, part, of_y, |y| f(isa, x, y)) };
    }
}

/// Tensors of one shape with short rows, as single rows if none has gaps: then short rows cost nothing. Else as they are.
#[inline(always)]
pub fn flattened<const N: usize>(all: [&Tensor; N]) -> [Tensor; N] {
    const LONG: usize = 512;
    let short = |t: &&Tensor| t.ne[0] < LONG && t.n_rows() > 1;
    match all.iter().all(short) && all.iter().all(|t| t.is_gapless()) {
        true => all.map(|t| t.flat()),
        false => all.map(|t| *t),
    }
}

/// Elements `part` of the row at these indices as f32: in place if they are contiguous F32, else decoded into
/// the arena.
#[inline(always)]
pub fn read<'a>(
    isa: Isa,
    t: &'a Tensor,
    at: [usize; 3],
    part: Range<usize>,
    arena: &'a mut crate::scratch::Arena,
) -> &'a [f32] {
    let in_place = t.dtype == DType::F32 && t.nb[0] == 4;
    let room = arena.take(if in_place { 0 } else { part.len() });
    rows::read(isa, t, at, part, room)
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
