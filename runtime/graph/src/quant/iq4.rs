//! IQ4_NL and IQ4_XS: nibbles that choose from 16 unevenly spaced levels.
//!
//! IQ4_NL: blocks of 32: d, 16 bytes of nibbles as in Q4_0. IQ4_XS: 8 sub-blocks of 32 with 6-bit scales s + 32:
//! d, a u16 of upper two bits, 4 bytes of low nibbles, 8 × 16 bytes of nibbles; elements level · d·s.

use super::float::half_at;
use super::k_scales::signed_integers;
use super::legacy::{inverse_of, largest_magnitude, nibbles, put_nibbles};
use super::scale_search::{Best, TINY, sums};

/// The levels.
const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) fn decode_iq4_nl(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend(nibbles(&block[2..18]).map(|q| d * LEVELS[q as usize] as f32));
}

pub(super) fn encode_iq4_nl(x: &[f32], block: &mut [u8]) {
    let d = super::float::put_half(block, 0, level_scale(x));
    put_nibbles(&mut block[2..18], |i| nearest_level(x[i] * inverse_of(d)));
}

pub(super) fn decode_iq4_xs(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for j in 0..8 {
        let s = block[4 + j / 2] >> (j % 2 * 4) & 15 | ((high >> (2 * j) & 3) as u8) << 4;
        let d = d * (s as f32 - 32.0);
        out.extend(nibbles(&block[8 + 16 * j..][..16]).map(|q| d * LEVELS[q as usize] as f32));
    }
}

pub(super) fn encode_iq4_xs(x: &[f32], block: &mut [u8]) {
    let (d, scales) = signed_integers(x.chunks_exact(32).map(level_scale).collect(), 32.0, block, 0);
    block[2..8].fill(0);
    for (j, &s) in scales.iter().enumerate() {
        let stored = (s + 32) as u8;
        block[4 + j / 2] |= (stored & 15) << (j % 2 * 4);
        block[2 + j / 4] |= stored >> 4 << (j % 4 * 2);
        let inverse = inverse_of(d * s as f32);
        put_nibbles(&mut block[8 + 16 * j..][..16], |i| nearest_level(x[32 * j + i] * inverse));
    }
}

/// The scale with which level · scale comes nearest to x, from candidates that put the largest magnitude near the lowest
/// level.
fn level_scale(x: &[f32]) -> f32 {
    let peak = largest_magnitude(x);
    if peak.abs() < TINY {
        return 0.0;
    }
    let mut best = Best::default();
    for step in -9..=9 {
        let inverse = (127.0 + 2.0 * step as f32) / -peak;
        let [xq, qq] = sums(x, |x| {
            let q = rounded(x * inverse);
            [x * q, q * q]
        });
        best.offer(xq * xq / qq, (xq / qq, 0.0));
    }
    best.fit.0
}

/// The nearest level: the lowest, and a step for each middle between levels that is below.
fn rounded(v: f32) -> f32 {
    (0..15)
        .fold(LEVELS[0] as f32, |q, i| if v > middle(i) { q + (LEVELS[i + 1] - LEVELS[i]) as f32 } else { q })
}

/// Number of the nearest level.
fn nearest_level(v: f32) -> u8 {
    (0..15).map(|i| (v > middle(i)) as u8).sum()
}

/// Between level i and the next.
fn middle(i: usize) -> f32 {
    (LEVELS[i] as f32 + LEVELS[i + 1] as f32) / 2.0
}
