//! f32 rows as quantised blocks, for caches and casts.

use crate::simd::{Isa, Simd, dispatch, f16_to_f32, f32_to_f16};
use llmrt_plugin::DType;

/// Whether rows of f32 become this dtype.
pub fn is_supported(dtype: DType) -> bool {
    matches!(dtype, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0)
}

/// Encodes blocks of 32 elements.
pub fn encode(isa: Isa, dtype: DType, x: &[f32], out: &mut [u8]) {
    let blocks = x.as_chunks::<32>().0.iter().zip(out.chunks_exact_mut(dtype.block_bytes()));
    match dtype {
        DType::Q8_0 => q8_0(isa, x, out),
        DType::Q4_0 => blocks.for_each(|(x, out)| symmetric::<4>(x, out)),
        DType::Q5_0 => blocks.for_each(|(x, out)| symmetric::<5>(x, out)),
        DType::Q4_1 => blocks.for_each(|(x, out)| with_minimum::<4>(x, out)),
        DType::Q5_1 => blocks.for_each(|(x, out)| with_minimum::<5>(x, out)),
        _ => {}
    }
}

dispatch! {
    fn q8_0(x: &[f32], out: &mut [u8]) = q8_0_with;
}

/// d = largest magnitude / 127, q = x / d to the nearest.
#[inline(always)]
fn q8_0_with<S: Simd>(s: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<34>().0) {
        let (halves, _) = x.as_chunks::<16>();
        let halves = [s.load(&halves[0]), s.load(&halves[1])];
        let magnitude = |v| s.from_bits(s.and(s.bits(v), s.splat_i(0x7fff_ffff)));
        let d = s.peak(s.max(magnitude(halves[0]), magnitude(halves[1]))) / 127.0;
        let inverse = s.splat(if d > 0.0 { d.recip() } else { 0.0 });
        out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
        for (half, to) in halves.into_iter().zip(out[2..].as_chunks_mut::<16>().0) {
            s.store_i8(s.round(s.mul(half, inverse)), to);
        }
    }
}

/// d such that the element of largest magnitude becomes the lowest integer, which has no positive twin.
fn symmetric<const BITS: u32>(x: &[f32; 32], out: &mut [u8]) {
    let half = (1 << (BITS - 1)) as f32;
    let largest = x.iter().copied().fold(0.0, |a: f32, b| if b.abs() > a.abs() { b } else { a });
    let d = largest / -half;
    let inverse = if d == 0.0 { 0.0 } else { d.recip() };
    out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    pack::<BITS>(&mut out[2..], |i| x[i] * inverse + half + 0.5);
}

/// d and m such that the smallest element becomes 0 and the largest the highest integer.
fn with_minimum<const BITS: u32>(x: &[f32; 32], out: &mut [u8]) {
    let min = x.iter().copied().fold(f32::INFINITY, f32::min);
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / ((1 << BITS) - 1) as f32;
    let inverse = if d == 0.0 { 0.0 } else { d.recip() };
    let m = f32_to_f16(min);
    out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
    out[2..4].copy_from_slice(&m.to_le_bytes());
    pack::<BITS>(&mut out[4..], |i| (x[i] - f16_to_f32(m)) * inverse + 0.5);
}

/// Truncated values as 4-bit parts, the fifth bits in front of them.
fn pack<const BITS: u32>(out: &mut [u8], value: impl Fn(usize) -> f32) {
    let q = |i: usize| value(i).clamp(0.0, ((1 << BITS) - 1) as f32) as u32;
    let (fifth, low) = out.split_at_mut(if BITS == 5 { 4 } else { 0 });
    let mut bits = 0u32;
    for (j, low) in low.iter_mut().enumerate() {
        let (a, b) = (q(j), q(j + 16));
        *low = (a & 15 | (b & 15) << 4) as u8;
        bits |= (a >> 4) << j | (b >> 4) << (j + 16);
    }
    if BITS == 5 {
        fifth.copy_from_slice(&bits.to_le_bytes());
    }
}
