//! Q4_K and Q5_K: 8 sub-blocks of 32, elements q · d·s - dmin·m with q of 4 or 5 bits, s and m of 6 bits.
//!
//! Bytes: d, dmin, 12 of (s, m), in Q5_K 32 of fifth bits (bit i/32 of byte i mod 32 for element i), 128 of nibbles:
//! each 32 bytes hold one sub-block in their low and the next in their high four bits.

use super::float::half_at;
use super::k_scales::{fit_pairs, put_six_bit_pairs, six_bit_pairs};
use super::legacy::{inverse_of, round_to};

pub(super) fn decode_q4_k(block: &[u8], out: &mut Vec<f32>) {
    decode(block, 16, |_| 0, out);
}

pub(super) fn decode_q5_k(block: &[u8], out: &mut Vec<f32>) {
    decode(block, 48, |i| (block[16 + i % 32] >> (i / 32) & 1) << 4, out);
}

fn decode(block: &[u8], nibbles: usize, fifth_bit: impl Fn(usize) -> u8, out: &mut Vec<f32>) {
    let (d, d_min) = (half_at(block, 0), half_at(block, 2));
    let pairs = six_bit_pairs(&block[4..16]);
    for i in 0..256 {
        let (s, m) = pairs[i / 32];
        let q = block[nibbles + at(i)] >> shift(i) & 15 | fifth_bit(i);
        out.push(d * s as f32 * q as f32 - d_min * m as f32);
    }
}

pub(super) fn encode_q4_k(x: &[f32], block: &mut [u8]) {
    let q = fit(x, block, 15);
    block[16..].fill(0);
    (0..256).for_each(|i| block[16 + at(i)] |= q[i] << shift(i));
}

pub(super) fn encode_q5_k(x: &[f32], block: &mut [u8]) {
    let q = fit(x, block, 31);
    block[16..].fill(0);
    for (i, q) in q.iter().enumerate() {
        block[48 + at(i)] |= (q & 15) << shift(i);
        block[16 + i % 32] |= (q >> 4) << (i / 32);
    }
}

/// Writes the scales; gives the elements as integers.
fn fit(x: &[f32], block: &mut [u8], max_q: u8) -> Vec<u8> {
    let pairs = fit_pairs(x, 32, max_q, 63, block, 0);
    let (d, d_min) = (half_at(block, 0), half_at(block, 2));
    put_six_bit_pairs(&mut block[4..16], &std::array::from_fn(|j| pairs[j]));
    let q = |(i, v): (usize, &f32)| {
        let (s, m) = pairs[i / 32];
        round_to((v + d_min * m as f32) * inverse_of(d * s as f32), max_q)
    };
    x.iter().enumerate().map(q).collect()
}

/// The byte of element i's nibble.
fn at(i: usize) -> usize {
    i / 64 * 32 + i % 32
}

/// The place of element i in that byte.
fn shift(i: usize) -> usize {
    i / 32 % 2 * 4
}
