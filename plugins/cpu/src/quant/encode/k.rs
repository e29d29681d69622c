//! Q2_K to Q6_K: 256 elements whose sub-blocks have small integer scales.

use super::scale_search::{scale_and_minimum, signed_scale};
use super::{inverse_of, peak, put_half};
use crate::simd::{Simd, dispatch};

dispatch! {
    pub fn q2_k(x: &[f32], out: &mut [u8]) = q2_k_with;
    pub fn q3_k(x: &[f32], out: &mut [u8]) = q3_k_with;
    pub fn q4_k(x: &[f32], out: &mut [u8]) = q4_k_with;
    pub fn q5_k(x: &[f32], out: &mut [u8]) = q5_k_with;
    pub fn q6_k(x: &[f32], out: &mut [u8]) = q6_k_with;
}

#[inline(always)]
fn q2_k_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<84>().0) {
        out.fill(0);
        let (pairs, q) = with_minima::<16>(x, 3, 15, &mut out[80..]);
        out.iter_mut().zip(&pairs).for_each(|(out, (scale, min))| *out = scale | min << 4);
        for (i, q) in q.iter().enumerate() {
            out[16 + i / 128 * 32 + i % 32] |= q << (i / 32 % 4 * 2);
        }
    }
}

#[inline(always)]
fn q3_k_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<110>().0) {
        out.fill(0);
        let (scales, q) = signed::<16>(x, 4.0, 32.0, &mut out[108..]);
        for (j, scale) in scales.iter().enumerate() {
            let scale = (scale + 32) as u8;
            out[96 + j % 8] |= (scale & 15) << (j / 8 * 4);
            out[104 + j % 4] |= (scale >> 4) << (j / 4 * 2);
        }
        for (i, q) in q.iter().enumerate() {
            out[32 + i / 128 * 32 + i % 32] |= (q & 3) << (i / 32 % 4 * 2);
            out[i % 32] |= (q >> 2) << (i / 32);
        }
    }
}

#[inline(always)]
fn q4_k_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<144>().0) {
        let (pairs, q) = with_minima::<8>(x, 15, 63, out);
        put_pairs(&pairs, &mut out[4..]);
        put_nibbles(&q, &mut out[16..]);
    }
}

#[inline(always)]
fn q5_k_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<176>().0) {
        let (pairs, q) = with_minima::<8>(x, 31, 63, out);
        put_pairs(&pairs, &mut out[4..]);
        put_nibbles(&q, &mut out[48..]);
        for (l, fifth) in out[16..48].iter_mut().enumerate() {
            *fifth = (0..8).fold(0, |bits, g| bits | (q[32 * g + l] >> 4) << g);
        }
    }
}

#[inline(always)]
fn q6_k_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<210>().0) {
        out.fill(0);
        let (scales, q) = signed::<16>(x, 32.0, 128.0, &mut out[208..]);
        out[192..].iter_mut().zip(&scales).for_each(|(out, scale)| *out = *scale as u8);
        for (i, q) in q.iter().enumerate() {
            out[i / 128 * 64 + i % 64] |= (q & 15) << (i / 64 % 2 * 4);
            out[128 + i / 128 * 32 + i % 32] |= (q >> 4) << (i / 32 % 4 * 2);
        }
    }
}

/// Scale and minimum of each of `N` sub-blocks as integers up to `max_int`, and the elements as integers up to `max_q`;
/// writes the two halves that scales and minima multiply.
#[inline(always)]
fn with_minima<const N: usize>(
    x: &[f32; 256],
    max_q: u8,
    max_int: u8,
    halves: &mut [u8],
) -> ([(u8, u8); N], [u8; 256]) {
    let mut fits = [(0.0, 0.0); N];
    for (fit, x) in fits.iter_mut().zip(x.chunks_exact(256 / N)) {
        *fit = scale_and_minimum(x, max_q as f32);
    }
    let (scale, min) = fits.iter().fold((0f32, 0f32), |(s, m), fit| (s.max(fit.0), m.max(fit.1)));
    let d = put_half(halves, 0, scale / max_int as f32);
    let d_min = put_half(halves, 2, min / max_int as f32);
    let as_int = |v: f32, d: f32| (v * inverse_of(d)).round().clamp(0.0, max_int as f32) as u8;
    let pairs = fits.map(|(scale, min)| (as_int(scale, d), as_int(min, d_min)));

    let mut q = [0; 256];
    let parts = q.chunks_exact_mut(256 / N).zip(x.chunks_exact(256 / N));
    for ((q, x), (scale, min)) in parts.zip(pairs) {
        let (inverse, min) = (inverse_of(d * scale as f32), d_min * min as f32);
        for (q, x) in q.iter_mut().zip(x) {
            *q = ((x + min) * inverse).round().clamp(0.0, max_q as f32) as u8;
        }
    }
    (pairs, q)
}

/// The scale of each of `N` sub-blocks as an integer from -max_int to max_int - 1, and the elements as integers plus
/// max_q; writes the half that scales multiply.
#[inline(always)]
fn signed<const N: usize>(x: &[f32; 256], max_q: f32, max_int: f32, half: &mut [u8]) -> ([i8; N], [u8; 256]) {
    let mut scales = [0.0; N];
    for (scale, x) in scales.iter_mut().zip(x.chunks_exact(256 / N)) {
        *scale = signed_scale(x, max_q);
    }
    let (d, scales) = signed_integers(&scales, max_int, half);
    let mut q = [0; 256];
    let parts = q.chunks_exact_mut(256 / N).zip(x.chunks_exact(256 / N));
    for ((q, x), scale) in parts.zip(scales) {
        let inverse = inverse_of(d * scale as f32);
        for (q, x) in q.iter_mut().zip(x) {
            *q = ((x * inverse).round().clamp(-max_q, max_q - 1.0) + max_q) as u8;
        }
    }
    (scales, q)
}

/// Scales as integers from -max_int to max_int - 1; writes the half that they multiply.
#[inline(always)]
pub fn signed_integers<const N: usize>(scales: &[f32; N], max_int: f32, half: &mut [u8]) -> (f32, [i8; N]) {
    let d = put_half(half, 0, peak(scales) / -max_int);
    let inverse = inverse_of(d);
    (d, scales.map(|s| (s * inverse).round().clamp(-max_int, max_int - 1.0) as i8))
}

/// Six bits each: scales 0–3, minima 0–3, low nibbles of 4–7, whose upper two bits are those of the first eight bytes.
#[inline(always)]
fn put_pairs(pairs: &[(u8, u8); 8], out: &mut [u8]) {
    for j in 0..4 {
        let ((scale, min), (scale_4, min_4)) = (pairs[j], pairs[j + 4]);
        out[j] = scale | scale_4 >> 4 << 6;
        out[j + 4] = min | min_4 >> 4 << 6;
        out[j + 8] = scale_4 & 15 | (min_4 & 15) << 4;
    }
}

/// Each 32 bytes hold one sub-block in their low and the next in their high four bits.
#[inline(always)]
fn put_nibbles(q: &[u8; 256], out: &mut [u8]) {
    for (q, out) in q.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for l in 0..32 {
            out[l] = q[l] & 15 | (q[l + 32] & 15) << 4;
        }
    }
}
