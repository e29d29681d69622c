//! Blocks of 32 with a scale and, in the `_1` forms, a minimum: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

use super::{inverse_of, peak, put_half};
use crate::simd::{Simd, dispatch, f32_to_f16};

pub fn q4_0(x: &[f32], out: &mut [u8]) {
    blocks::<18>(x, out, symmetric::<4>);
}

pub fn q5_0(x: &[f32], out: &mut [u8]) {
    blocks::<22>(x, out, symmetric::<5>);
}

pub fn q4_1(x: &[f32], out: &mut [u8]) {
    blocks::<20>(x, out, with_minimum::<4>);
}

pub fn q5_1(x: &[f32], out: &mut [u8]) {
    blocks::<24>(x, out, with_minimum::<5>);
}

fn blocks<const BYTES: usize>(x: &[f32], out: &mut [u8], encode: impl Fn(&[f32; 32], &mut [u8])) {
    let out = out.as_chunks_mut::<BYTES>().0;
    x.as_chunks::<32>().0.iter().zip(out).for_each(|(x, out)| encode(x, out));
}

dispatch! {
    pub fn q8_0(x: &[f32], out: &mut [u8]) = q8_0_with;
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
    let largest = peak(x);
    let inverse = inverse_of(put_half(out, 0, largest / -half));
    pack::<BITS>(&mut out[2..], |i| x[i] * inverse + half);
}

/// d and m such that the smallest element becomes 0 and the largest the highest integer.
fn with_minimum<const BITS: u32>(x: &[f32; 32], out: &mut [u8]) {
    let min = x.iter().copied().fold(f32::INFINITY, f32::min);
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let inverse = inverse_of(put_half(out, 0, (max - min) / ((1 << BITS) - 1) as f32));
    let m = put_half(out, 2, min);
    pack::<BITS>(&mut out[4..], |i| (x[i] - m) * inverse);
}

/// Rounded values as 4-bit parts, the fifth bits in front of them.
fn pack<const BITS: u32>(out: &mut [u8], value: impl Fn(usize) -> f32) {
    let q = |i: usize| value(i).round().clamp(0.0, ((1 << BITS) - 1) as f32) as u32;
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
