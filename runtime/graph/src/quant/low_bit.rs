//! Q1_0 and Q2_0: d, then one or two bits per element in element order, lowest bits first.
//!
//! Q1_0 (128 elements): a set bit is d, a clear one -d. Q2_0 (64 elements): (q - 1) · d.

use super::float::{half_at, put_half};
use super::legacy::{inverse_of, largest_magnitude};

pub(super) fn decode_q1_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend((0..128).map(|i| if block[2 + i / 8] >> (i % 8) & 1 == 1 { d } else { -d }));
}

/// The scale is the mean magnitude: the best for given signs.
pub(super) fn encode_q1_0(x: &[f32], block: &mut [u8]) {
    block.fill(0);
    put_half(block, 0, x.iter().map(|v| v.abs()).sum::<f32>() / x.len() as f32);
    for (i, v) in x.iter().enumerate() {
        block[2 + i / 8] |= ((*v >= 0.0) as u8) << (i % 8);
    }
}

pub(super) fn decode_q2_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend((0..64).map(|i| ((block[2 + i / 4] >> (i % 4 * 2) & 3) as f32 - 1.0) * d));
}

pub(super) fn encode_q2_0(x: &[f32], block: &mut [u8]) {
    block.fill(0);
    let d = put_half(block, 0, largest_magnitude(x).abs());
    for (i, v) in x.iter().enumerate() {
        let q = (v * inverse_of(d)).round().clamp(-1.0, 1.0) + 1.0;
        block[2 + i / 4] |= (q as u8) << (i % 4 * 2);
    }
}
