//! Blocks of 32 with F16 scale and, in the `_1` forms, F16 minimum: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1.
//!
//! Byte j of the nibbles holds element j in its low and element j + 16 in its high four bits. The `_0` forms store
//! q + 8 or q + 16 and mean q · d; the `_1` forms mean q · d + m. Fifth bits stand in a u32, bit j for element j.

use super::float::{half_at, put_half};

pub(super) fn decode_q4_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend(nibbles(&block[2..18]).map(|q| (q as f32 - 8.0) * d));
}

pub(super) fn encode_q4_0(x: &[f32], block: &mut [u8]) {
    let inverse = put_signed_scale(x, block, 8.0);
    put_nibbles(&mut block[2..18], |i| round_to(x[i] * inverse + 8.0, 15));
}

pub(super) fn decode_q4_1(block: &[u8], out: &mut Vec<f32>) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    out.extend(nibbles(&block[4..20]).map(|q| q as f32 * d + m));
}

pub(super) fn encode_q4_1(x: &[f32], block: &mut [u8]) {
    let (inverse, m) = put_range(x, block, 15.0);
    put_nibbles(&mut block[4..20], |i| round_to((x[i] - m) * inverse, 15));
}

pub(super) fn decode_q5_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    let fifth = fifth_bits(&block[2..6]);
    out.extend(nibbles(&block[6..22]).zip(fifth).map(|(q, fifth)| ((q | fifth) as f32 - 16.0) * d));
}

pub(super) fn encode_q5_0(x: &[f32], block: &mut [u8]) {
    let inverse = put_signed_scale(x, block, 16.0);
    put_five_bits(&mut block[2..22], |i| round_to(x[i] * inverse + 16.0, 31));
}

pub(super) fn decode_q5_1(block: &[u8], out: &mut Vec<f32>) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let fifth = fifth_bits(&block[4..8]);
    out.extend(nibbles(&block[8..24]).zip(fifth).map(|(q, fifth)| (q | fifth) as f32 * d + m));
}

pub(super) fn encode_q5_1(x: &[f32], block: &mut [u8]) {
    let (inverse, m) = put_range(x, block, 31.0);
    put_five_bits(&mut block[4..24], |i| round_to((x[i] - m) * inverse, 31));
}

pub(super) fn decode_q8_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend(block[2..34].iter().map(|&q| q as i8 as f32 * d));
}

pub(super) fn encode_q8_0(x: &[f32], block: &mut [u8]) {
    let d = x.iter().fold(0f32, |max, v| max.max(v.abs())) / 127.0;
    put_half(block, 0, d);
    let inverse = inverse_of(d);
    block[2..].iter_mut().zip(x).for_each(|(q, v)| *q = (v * inverse).round() as i8 as u8);
}

/// Like Q8_0, with d · Σ q as a second half.
pub(super) fn decode_q8_1(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend(block[4..36].iter().map(|&q| q as i8 as f32 * d));
}

/// The 32 nibbles of 16 bytes in element order: all low ones, then all high ones.
pub(super) fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|b| b & 15).chain(bytes.iter().map(|b| b >> 4))
}

/// Fills 16 bytes with the nibbles of 32 elements.
pub(super) fn put_nibbles(bytes: &mut [u8], q: impl Fn(usize) -> u8) {
    bytes.iter_mut().enumerate().for_each(|(j, b)| *b = (q(j) & 15) | q(j + 16) << 4);
}

/// The fifth bits of 32 elements, in place (0 or 16).
fn fifth_bits(bytes: &[u8]) -> impl Iterator<Item = u8> {
    (0..32).map(|i| (bytes[i / 8] >> (i % 8) & 1) << 4)
}

/// Fills 4 bytes of fifth bits and 16 of nibbles.
fn put_five_bits(bytes: &mut [u8], q: impl Fn(usize) -> u8) {
    let (fifth, low) = bytes.split_at_mut(4);
    fifth.fill(0);
    (0..32).for_each(|i| fifth[i / 8] |= (q(i) >> 4) << (i % 8));
    put_nibbles(low, q);
}

/// Writes the scale that puts the largest magnitude at -n, and gives its inverse. That end of the range is one longer.
pub(super) fn put_signed_scale(x: &[f32], block: &mut [u8], n: f32) -> f32 {
    let d = largest_magnitude(x) / -n;
    inverse_of(put_half(block, 0, d))
}

/// Writes scale and minimum for q in 0..=n; gives the scale's inverse and the minimum.
fn put_range(x: &[f32], block: &mut [u8], n: f32) -> (f32, f32) {
    let (min, max) = x.iter().fold((f32::MAX, f32::MIN), |(min, max), &v| (min.min(v), max.max(v)));
    let m = put_half(block, 2, min);
    let d = put_half(block, 0, (max - min) / n);
    (inverse_of(d), m)
}

/// The element farthest from 0, with its sign.
pub(super) fn largest_magnitude(x: &[f32]) -> f32 {
    x.iter().copied().fold(0.0, |a: f32, b| if b.abs() > a.abs() { b } else { a })
}

/// 1 / d; 0 for 0.
pub(super) fn inverse_of(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { d.recip() }
}

/// The nearest whole number in 0..=max.
pub(super) fn round_to(v: f32, max: u8) -> u8 {
    v.round().clamp(0.0, max as f32) as u8
}
