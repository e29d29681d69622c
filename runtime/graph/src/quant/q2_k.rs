//! Q2_K: 16 sub-blocks of 16, elements q · d·s - dmin·m with q of 2 bits, s and m of 4 bits.
//!
//! Bytes: 16 of (s low, m high nibble), 64 of q, d, dmin. Byte l of a half's 32 holds elements l, l+32, l+64, l+96.

use super::float::half_at;
use super::k_scales::fit_pairs;
use super::legacy::{inverse_of, round_to};

pub(super) fn decode(block: &[u8], out: &mut Vec<f32>) {
    let (d, d_min) = (half_at(block, 80), half_at(block, 82));
    for i in 0..256 {
        let pair = block[i / 16];
        out.push(d * (pair & 15) as f32 * (block[at(i)] >> shift(i) & 3) as f32 - d_min * (pair >> 4) as f32);
    }
}

pub(super) fn encode(x: &[f32], block: &mut [u8]) {
    let pairs = fit_pairs(x, 16, 3, 15, block, 80);
    let (d, d_min) = (half_at(block, 80), half_at(block, 82));
    block[..80].fill(0);
    for (i, &v) in x.iter().enumerate() {
        let (s, m) = pairs[i / 16];
        block[i / 16] = s | m << 4;
        let q = round_to((v + d_min * m as f32) * inverse_of(d * s as f32), 3);
        block[at(i)] |= q << shift(i);
    }
}

/// The byte of element i.
fn at(i: usize) -> usize {
    16 + i / 128 * 32 + i % 32
}

/// The place of element i in its byte.
fn shift(i: usize) -> usize {
    i / 32 % 4 * 2
}
