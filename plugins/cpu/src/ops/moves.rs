//! What ops share that move elements without looking at them: any dtype, rows of the result put together from runs.

use super::check::{self, Answer, ensure};
use super::{Args, Output, rows};
use crate::simd::{Isa, f16_to_f32};
use crate::tensor::Tensor;
use llmrt_plugin::abi::dtype::DTypeKind;
use llmrt_plugin::{DType, NodeView, Reason, TensorView};
use std::ops::Range;

/// Source `i` and its dtype: plain ones at any strides, quantised ones with dense rows.
pub fn any<'a>(node: &NodeView<'a>, i: usize) -> Result<(TensorView<'a>, DType), Reason> {
    let t = check::given(node, i)?;
    let dtype = t.dtype().ok_or(Reason::Type)?;
    ensure(t.layout_id() == 0, Reason::Layout)?;
    ensure(t.ne()[0].is_multiple_of(dtype.block_elems()), Reason::Shape)?;
    ensure(!dtype.is_quantised() || t.nb()[0] == dtype.block_bytes(), Reason::Stride)?;
    Ok((t, dtype))
}

/// Source `i`, of a plain dtype, at any strides.
pub fn plain<'a>(node: &NodeView<'a>, i: usize) -> Result<(TensorView<'a>, DType), Reason> {
    let (t, dtype) = any(node, i)?;
    ensure(!dtype.is_quantised(), Reason::Type)?;
    Ok((t, dtype))
}

/// Source `i`: I32 or I64 with dense rows.
pub fn ids<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let (t, dtype) = plain(node, i)?;
    ensure(matches!(dtype, DType::I32 | DType::I64), Reason::Type)?;
    ensure(t.nb()[0] == dtype.block_bytes() || t.ne()[0] <= 1, Reason::Stride)?;
    Ok(t)
}

/// The result is source 0 itself.
pub fn in_place(node: &NodeView<'_>) -> Answer {
    let (y, dtype) = any(node, 0)?;
    let (dst, ne, nb) = (node.dst(), y.ne(), y.nb());
    ensure(dst.dtype() == Some(dtype), Reason::Type)?;
    ensure(dst.ne() == ne, Reason::Shape)?;
    ensure(dst.nb() == nb, Reason::Stride)
}

/// Whether elements of this dtype are integers.
pub fn is_int(dtype: DType) -> bool {
    dtype.info().kind == DTypeKind::Int
}

/// Id `i` of a row of ids, if it is below `n`.
pub fn id(ids: &Tensor, at: [usize; 3], i: usize, n: usize) -> Option<usize> {
    let size = ids.dtype.block_bytes();
    let id = int(&ids.row_bytes(at)[i * size..][..size]);
    usize::try_from(id).ok().filter(|&id| id < n)
}

/// An integer of 1, 2, 4 or 8 bytes.
pub fn int(bytes: &[u8]) -> i64 {
    match *bytes {
        [a] => i8::from_le_bytes([a]) as i64,
        [a, b] => i16::from_le_bytes([a, b]) as i64,
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]) as i64,
        [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// The element of an F32, F16 or BF16 tensor.
pub fn number(t: &Tensor, [i0, i1, i2, i3]: [usize; 4]) -> f32 {
    let bytes = &t.bytes()[t.offset_of([i1, i2, i3]) + i0 * t.nb[0]..];
    match (t.dtype, bytes) {
        (DType::F32, [a, b, c, d, ..]) => f32::from_le_bytes([*a, *b, *c, *d]),
        (DType::F16, [a, b, ..]) => f16_to_f32(u16::from_le_bytes([*a, *b])),
        (_, [a, b, ..]) => f32::from_bits((u16::from_le_bytes([*a, *b]) as u32) << 16),
        _ => 0.0,
    }
}

/// Encodes whole blocks; integers drop the fraction and saturate.
pub fn encode(isa: Isa, dtype: DType, x: &[f32], out: &mut [u8]) {
    let places = out.chunks_exact_mut(dtype.block_bytes()).zip(x);
    match dtype {
        DType::I8 => places.for_each(|(out, x)| out.copy_from_slice(&(*x as i8).to_le_bytes())),
        DType::I16 => places.for_each(|(out, x)| out.copy_from_slice(&(*x as i16).to_le_bytes())),
        DType::I32 => places.for_each(|(out, x)| out.copy_from_slice(&(*x as i32).to_le_bytes())),
        DType::I64 => places.for_each(|(out, x)| out.copy_from_slice(&(*x as i64).to_le_bytes())),
        _ => rows::encode(isa, dtype, x, out),
    }
}

/// One element of a plain dtype.
pub struct Element {
    bytes: [u8; 8],
    size: usize,
}

impl Element {
    /// A number; integers drop its fraction.
    pub fn new(isa: Isa, dtype: DType, v: f32) -> Element {
        let (mut bytes, size) = ([0; 8], dtype.block_bytes().min(8));
        encode(isa, dtype, &[v], &mut bytes[..size]);
        Element { bytes, size }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// A dense row of a result, in blocks: elements of plain dtypes.
pub struct Row<'a> {
    bytes: &'a mut [u8],
    size: usize,
}

impl Row<'_> {
    /// Writes from place `to` on the `n` blocks from `from` on of a row of `x`.
    pub fn copy(&mut self, to: usize, x: &Tensor, at: [usize; 3], from: usize, n: usize) {
        let out = &mut self.bytes[to * self.size..(to + n) * self.size];
        if n > 0 {
            gather(&x.bytes()[x.offset_of(at) + from * x.nb[0]..], x.nb[0], self.size, out);
        }
    }

    /// Writes one element to all these places.
    pub fn fill(&mut self, places: Range<usize>, element: &Element) {
        let out = &mut self.bytes[places.start * self.size..places.end * self.size];
        out.chunks_exact_mut(self.size).for_each(|out| out.copy_from_slice(element.bytes()));
    }
}

/// This thread's rows of the result, which has dense ones: `write` puts each together.
pub fn each_row(a: &Args, out: Output<'_>, mut write: impl FnMut(Row<'_>, [usize; 3])) {
    for (at, y) in out.rows() {
        write(Row { bytes: y.bytes(), size: a.dst.dtype.block_bytes() }, at);
    }
}

/// Blocks of `size` bytes, `step` bytes apart, in order.
pub fn gather(from: &[u8], step: usize, size: usize, out: &mut [u8]) {
    match size {
        _ if step == size => out.copy_from_slice(&from[..out.len()]),
        1 => gather_of::<1>(from, step, out),
        2 => gather_of::<2>(from, step, out),
        4 => gather_of::<4>(from, step, out),
        8 => gather_of::<8>(from, step, out),
        _ => {
            let blocks = out.chunks_exact_mut(size).enumerate();
            blocks.for_each(|(i, out)| out.copy_from_slice(&from[i * step..][..size]));
        }
    }
}

fn gather_of<const SIZE: usize>(from: &[u8], step: usize, out: &mut [u8]) {
    for (i, out) in out.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
        out.copy_from_slice(&from[i * step..][..SIZE]);
    }
}
