//! y = x without gaps, converted to another dtype. Reads rows with gaps (permuted dim 0).

use super::check::{self, Answer, ensure};
use super::moves::{self, is_int};
use super::{Args, Output, Worker, rows};
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::CopyParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(CopyParams::from_bytes(node.params_bytes()))?;
    let to = DType::from_id(p.dtype).ok_or(Reason::Param)?;
    let (x, from) = moves::any(node, 0)?;
    convertible(from, to)?;
    ensure(x.ne()[0].is_multiple_of(to.block_elems()), Reason::Shape)?;
    check::result(node, to, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    convert(w, a.arg(0), &a.dst, out);
}

/// Whether elements of one dtype become those of another.
pub fn convertible(from: DType, to: DType) -> Answer {
    let possible = match (is_int(from), is_int(to)) {
        (true, true) => true,
        (true, false) => !to.is_quantised(),
        (false, true) => !from.is_quantised(),
        (false, false) => from == to || (rows::can_decode(from) && rows::can_encode(to)),
    };
    ensure(possible, Reason::Type)
}

/// Writes the elements of `x`, in order, to those of the node's result `y`, in order.
pub fn convert(w: &mut Worker<'_>, x: &Tensor, y: &Tensor, out: Output<'_>) {
    let size = y.dtype.block_bytes();
    for (at, part, to) in out.pieces() {
        let first = y.ravel(at) * y.ne[0];
        let elems = first + part.start..first + part.end;
        let room = w.scratch.sums.take(part.len());
        if y.has_dense_rows() {
            converted(w.isa, x, elems, y.dtype, room, to.bytes());
            continue;
        }
        let bytes = w.scratch.rows.take::<u8>(part.len() * size);
        converted(w.isa, x, elems, y.dtype, room, bytes);
        to.blocks().zip(bytes.chunks_exact(size)).for_each(|(to, from)| to.copy_from_slice(from));
    }
}

/// Elements `elems` of all of `x` as bytes of dtype `to`. `room` has a place for each.
fn converted(isa: Isa, x: &Tensor, elems: Range<usize>, to: DType, room: &mut [f32], out: &mut [u8]) {
    let (block, size) = (x.dtype.block_elems(), x.dtype.block_bytes());
    let out_size = to.block_bytes();
    let integers = is_int(x.dtype) && is_int(to);
    let mut done = 0;
    while elems.start + done < elems.end {
        // A run: the elements within one row of x.
        let (row, start) = ((elems.start + done) / x.ne[0], (elems.start + done) % x.ne[0]);
        let n = (x.ne[0] - start).min(elems.end - elems.start - done);
        let at = x.unravel(row);
        let from = &x.bytes()[x.offset_of(at) + start / block * x.nb[0]..];
        if x.dtype == to {
            moves::gather(from, x.nb[0], size, &mut out[done / block * size..][..n / block * size]);
        } else if integers {
            let places = out[done * out_size..][..n * out_size].chunks_exact_mut(out_size).enumerate();
            places.for_each(|(i, out)| put_int(moves::int(&from[i * x.nb[0]..][..size]), out));
        } else if is_int(x.dtype) {
            let places = room[done..done + n].iter_mut().enumerate();
            places.for_each(|(i, out)| *out = moves::int(&from[i * x.nb[0]..][..size]) as f32);
        } else {
            numbers(isa, x, at, start..start + n, &mut room[done..done + n]);
        }
        done += n;
    }
    if x.dtype != to && !integers {
        moves::encode(isa, to, room, out);
    }
}

/// Elements `part` of a row as f32; part may start and end within blocks.
fn numbers(isa: Isa, x: &Tensor, at: [usize; 3], part: Range<usize>, out: &mut [f32]) {
    const LARGEST_BLOCK: usize = 256;
    let block = x.dtype.block_elems();
    if part.start.is_multiple_of(block) && part.end.is_multiple_of(block) {
        match x.dtype == DType::F32 && (x.nb[0] == 4 || x.ne[0] == 1) {
            true => out.copy_from_slice(&x.row(at)[part]),
            false => {
                rows::read(isa, x, at, part, out);
            }
        }
        return;
    }
    for b in part.start / block..part.end.div_ceil(block) {
        let mut room = [0.0; LARGEST_BLOCK];
        let whole = rows::read(isa, x, at, b * block..(b + 1) * block, &mut room[..block]);
        let (start, end) = (part.start.max(b * block), part.end.min((b + 1) * block));
        out[start - part.start..end - part.start].copy_from_slice(&whole[start - b * block..end - b * block]);
    }
}

/// Writes an integer in as many bytes as there are; one that does not fit becomes the nearest that does.
fn put_int(v: i64, out: &mut [u8]) {
    match out.len() {
        1 => out.copy_from_slice(&(v.clamp(i8::MIN.into(), i8::MAX.into()) as i8).to_le_bytes()),
        2 => out.copy_from_slice(&(v.clamp(i16::MIN.into(), i16::MAX.into()) as i16).to_le_bytes()),
        4 => out.copy_from_slice(&(v.clamp(i32::MIN.into(), i32::MAX.into()) as i32).to_le_bytes()),
        _ => out.copy_from_slice(&v.to_le_bytes()),
    }
}
