//! MXFP4 (OCP microscaling formats 1.0): blocks of 32 four-bit floats (E2M1) with a power of two (E8M0).
//!
//! Bytes: exponent e, 16 of nibbles as in Q4_0. Elements are stored doubled, so the factor is 2^(e - 128).

use super::legacy::{inverse_of, nibbles, put_nibbles};

/// Twice the values of the sixteen E2M1 numbers.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) fn decode(block: &[u8], out: &mut Vec<f32>) {
    let d = half_power(block[0]);
    out.extend(nibbles(&block[1..17]).map(|q| DOUBLED[q as usize] as f32 * d));
}

pub(super) fn encode(x: &[f32], block: &mut [u8]) {
    let max = x.iter().fold(0f32, |max, v| max.max(v.abs()));
    // The largest element becomes 4 to 8 of the unit, saturating at 6.
    block[0] = if max > 0.0 { (max.log2().floor() + 125.0).clamp(0.0, 254.0) as u8 } else { 0 };
    let inverse = inverse_of(half_power(block[0]));
    put_nibbles(&mut block[1..17], |i| nearest(x[i] * inverse));
}

/// 2^(e - 128), also where that is subnormal.
fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e as u32 - 1) << 23 })
}

fn nearest(v: f32) -> u8 {
    let distance = |q: &u8| (DOUBLED[*q as usize] as f32 - v).abs();
    (0..16).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}
