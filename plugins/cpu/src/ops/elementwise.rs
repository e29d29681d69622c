//! Elementwise work: pieces of rows as f32, whatever dtype and strides the operands have.

use super::output::Part;
use super::{Args, Output, Worker, rows};
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use std::ops::Range;

/// Writes `f(x)` over the result, for x of its shape. F32 with dense rows is read and written in place.
#[inline(always)]
pub fn map(w: &mut Worker<'_>, a: &Args, out: Output<'_>, f: impl Fn(Isa, &[f32], &mut [f32])) {
    let isa = w.isa;
    let ([x], out) = flattened([a.arg(0)], out);
    if x.has_f32_rows() {
        for (at, part, y) in out.pieces() {
            f(isa, &x.row(at)[part], y.floats());
        }
        return;
    }
    for (at, part, y) in out.pieces() {
        let [room, of_y, ..] = &mut w.scratch.floats;
        let x = read(isa, &x, at, part, room);
        write(isa, y, of_y, |y| f(isa, x, y));
    }
}

/// Sources and a result of one shape with short rows, as single rows if none has gaps: then short rows cost nothing. Else
/// as they are.
#[inline(always)]
pub fn flattened<'a, const N: usize>(src: [&Tensor; N], out: Output<'a>) -> ([Tensor; N], Output<'a>) {
    const LONG: usize = 512;
    let is_short = |t: &Tensor| t.ne[0] < LONG && t.n_rows() > 1;
    let all = || src.into_iter().chain([out.tensor()]);
    match all().all(is_short) && all().all(Tensor::is_gapless) {
        true => (src.map(Tensor::flat), out.flat()),
        false => (src.map(|t| *t), out),
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

/// Has `make` fill a part of the result: in place if it is F32, else by way of the arena, converting.
#[inline(always)]
pub fn write(isa: Isa, y: Part<'_>, arena: &mut crate::scratch::Arena, make: impl FnOnce(&mut [f32])) {
    if y.dtype() == DType::F32 {
        return make(y.floats());
    }
    let room = arena.take(y.len());
    make(room);
    y.write(isa, room);
}
