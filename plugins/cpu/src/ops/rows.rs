//! Rows of any dtype as f32, and back.

use crate::quant;
use crate::simd::{Isa, LANES, Simd, dispatch, f16_to_f32, f32_to_bf16};
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use std::ops::Range;

/// Whether rows of this dtype become f32.
pub fn can_decode(dtype: DType) -> bool {
    let float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64);
    float || quant::is_supported(dtype) || quant::plain::is_supported(dtype)
}

/// Whether rows of f32 become this dtype.
pub fn can_encode(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64) || quant::encode::is_supported(dtype)
}

/// Elements `part` of the row at these indices as f32, whatever its dtype and the distance of its elements; they are
/// made in `room`, which has as many places, unless they are stored as f32 already. Of quantised dtypes, whole blocks.
pub fn read<'a>(
    isa: Isa,
    t: &'a Tensor,
    at: [usize; 3],
    part: Range<usize>,
    room: &'a mut [f32],
) -> &'a [f32] {
    if part.is_empty() {
        return &[];
    }
    let is_dense = t.has_dense_rows();
    if is_dense && t.dtype == DType::F32 {
        return &t.row(at)[part];
    }
    let room = &mut room[..part.len()];
    if is_dense {
        decode(isa, t.dtype, &t.row_bytes(at)[t.bytes_of(&part)], room);
        return room;
    }
    let bytes = &t.bytes()[t.offset_of(at) + part.start * t.nb[0]..];
    let elements = (0..).map(|i| &bytes[i * t.nb[0]..]);
    match t.dtype {
        DType::F32 => gather(elements, room, f32::from_le_bytes),
        DType::F16 => gather(elements, room, |b| f16_to_f32(u16::from_le_bytes(b))),
        DType::BF16 => gather(elements, room, |b| f32::from_bits((u16::from_le_bytes(b) as u32) << 16)),
        dtype => room.iter_mut().zip(elements).for_each(|(out, bytes)| {
            decode(isa, dtype, &bytes[..dtype.block_bytes()], std::slice::from_mut(out))
        }),
    }
    room
}

/// Numbers from the first bytes of each element.
fn gather<'a, const N: usize>(
    elements: impl Iterator<Item = &'a [u8]>,
    out: &mut [f32],
    number: impl Fn([u8; N]) -> f32,
) {
    for (out, bytes) in out.iter_mut().zip(elements) {
        *out = bytes.first_chunk().map_or(0.0, |b| number(*b));
    }
}

/// Decodes `out.len()` elements, whole blocks.
pub fn decode(isa: Isa, dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => copy_f32(bytes, out),
        DType::F16 => from_f16(isa, bytes, out),
        DType::BF16 => from_bf16(isa, bytes, out),
        DType::Q8_0 => from_q8_0(isa, bytes, out),
        DType::Q4_0 => from_q4_0(isa, bytes, out),
        DType::F64 => {
            let numbers = bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b) as f32);
            out.iter_mut().zip(numbers).for_each(|(out, v)| *out = v);
        }
        _ if quant::is_supported(dtype) => quant::decode::decode(isa, dtype, bytes, out),
        _ => quant::plain::decode(dtype, bytes, out),
    }
}

/// Encodes whole blocks of elements.
pub fn encode(isa: Isa, dtype: DType, x: &[f32], out: &mut [u8]) {
    match dtype {
        DType::F32 => {
            out.as_chunks_mut::<4>().0.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_le_bytes());
        }
        DType::F64 => {
            let (places, _) = out.as_chunks_mut::<8>();
            places.iter_mut().zip(x).for_each(|(out, x)| *out = (*x as f64).to_le_bytes());
        }
        DType::F16 => to_f16(isa, x, out),
        DType::BF16 => {
            let (pairs, _) = out.as_chunks_mut::<2>();
            pairs.iter_mut().zip(x).for_each(|(out, x)| *out = f32_to_bf16(*x).to_le_bytes());
        }
        _ => quant::encode::encode(isa, dtype, x, out),
    }
}

fn copy_f32(bytes: &[u8], out: &mut [f32]) {
    out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(out, b)| *out = f32::from_le_bytes(*b));
}

dispatch! {
    fn from_f16(bytes: &[u8], out: &mut [f32]) = from_f16_with;
    fn from_bf16(bytes: &[u8], out: &mut [f32]) = from_bf16_with;
    fn from_q8_0(bytes: &[u8], out: &mut [f32]) = from_q8_0_with;
    fn from_q4_0(bytes: &[u8], out: &mut [f32]) = from_q4_0_with;
    fn to_f16(x: &[f32], out: &mut [u8]) = to_f16_with;
}

/// Elements of a step: two vectors, and a block of some formats.
pub const STEP: usize = 2 * LANES;

/// Numbers of a row, by steps.
pub trait Numbers {
    /// Bytes of a step.
    const BYTES: usize;

    /// The elements of a step.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> [S::F; 2];
}

/// Numbers of two bytes.
pub struct F16;
/// Blocks of d (F16) and 32 signed bytes: short enough to do without a panel.
pub struct Q8_0;
/// Blocks of d (F16) and 16 bytes, of which the low bits are elements 0 to 15, the high ones 16 to 31: (q - 8) · d.
pub struct Q4_0;

impl Numbers for F16 {
    const BYTES: usize = 2 * STEP;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> [S::F; 2] {
        let halves = bytes.as_chunks::<32>().0;
        [s.load_f16(&halves[0]), s.load_f16(&halves[1])]
    }
}

impl Numbers for Q8_0 {
    const BYTES: usize = 34;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> [S::F; 2] {
        let d = s.splat_f16(u16::from_le_bytes([bytes[0], bytes[1]]));
        let q = bytes[2..].as_chunks::<16>().0;
        [s.mul(s.float(s.load_i8(&q[0])), d), s.mul(s.float(s.load_i8(&q[1])), d)]
    }
}

impl Numbers for Q4_0 {
    const BYTES: usize = 18;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> [S::F; 2] {
        let d = s.splat_f16(u16::from_le_bytes([bytes[0], bytes[1]]));
        let q = s.load_i8(&bytes[2..].as_chunks::<16>().0[0]);
        [s.scaled_nibbles(q, d), s.scaled_nibbles(s.shr(q, 4), d)]
    }
}

/// Decodes whole steps.
#[inline(always)]
fn from_steps<S: Simd, N: Numbers>(s: S, bytes: &[u8], out: &mut [f32]) {
    for (bytes, to) in bytes.chunks_exact(N::BYTES).zip(out.as_chunks_mut::<STEP>().0) {
        let (to, x) = (to.as_chunks_mut::<LANES>().0, N::load(s, bytes));
        s.store(x[0], &mut to[0]);
        s.store(x[1], &mut to[1]);
    }
}

/// Decodes blocks of Q8_0.
#[inline(always)]
pub fn from_q8_0_with<S: Simd>(s: S, bytes: &[u8], out: &mut [f32]) {
    from_steps::<S, Q8_0>(s, bytes, out)
}

#[inline(always)]
fn from_q4_0_with<S: Simd>(s: S, bytes: &[u8], out: &mut [f32]) {
    from_steps::<S, Q4_0>(s, bytes, out)
}

#[inline(always)]
fn from_f16_with<S: Simd>(s: S, bytes: &[u8], out: &mut [f32]) {
    widen::<S, false>(s, bytes, out)
}

#[inline(always)]
fn from_bf16_with<S: Simd>(s: S, bytes: &[u8], out: &mut [f32]) {
    widen::<S, true>(s, bytes, out)
}

#[inline(always)]
fn widen<S: Simd, const BF16: bool>(s: S, bytes: &[u8], out: &mut [f32]) {
    let (vectors, rest) = bytes.as_chunks::<32>();
    let (to, to_rest) = out.as_chunks_mut::<LANES>();
    for (v, to) in vectors.iter().zip(to) {
        s.store(if BF16 { s.load_bf16(v) } else { s.load_f16(v) }, to);
    }
    let mut padded = [0; 32];
    let n = 2 * to_rest.len();
    padded[..n].copy_from_slice(&rest[..n]);
    s.store_part(if BF16 { s.load_bf16(&padded) } else { s.load_f16(&padded) }, to_rest);
}

#[inline(always)]
fn to_f16_with<S: Simd>(s: S, x: &[f32], out: &mut [u8]) {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let (to, to_rest) = out.as_chunks_mut::<32>();
    for (v, to) in vectors.iter().zip(to) {
        s.store_f16(s.load(v), to);
    }
    let mut padded = [0; 32];
    s.store_f16(s.load_part(rest), &mut padded);
    to_rest.copy_from_slice(&padded[..2 * rest.len()]);
}
