//! Q3_K: 16 sub-blocks of 16, elements q · d·s with q in -4..=3 and s in -32..=31.
//!
//! Bytes: 32 of high bits (bit i/32 of byte i mod 32 for element i; set means q ≥ 0), 64 of low two bits as in Q2_K,
//! 12 of s + 32, d. The low nibbles of s + 32 stand in bytes 0–7 (0–7 low, 8–15 high), its upper two bits in bytes
//! 8–11: those of sub-block j in byte 8 + j mod 4.

use super::float::half_at;
use super::k_scales::fit_signed;
use super::legacy::inverse_of;

pub(super) fn decode(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 108);
    let scales = scales(&block[96..108]);
    for i in 0..256 {
        let low = (block[at(i)] >> shift(i) & 3) as i8;
        let high = (block[i % 32] >> (i / 32) & 1) as i8;
        out.push(d * scales[i / 16] as f32 * (low + 4 * high - 4) as f32);
    }
}

pub(super) fn encode(x: &[f32], block: &mut [u8]) {
    let (d, scales) = fit_signed(x, 16, 4.0, 32.0, block, 108);
    block[..108].fill(0);
    for (j, s) in scales.iter().enumerate() {
        let s = (s + 32) as u8;
        block[96 + j % 8] |= (s & 15) << (j / 8 * 4);
        block[104 + j % 4] |= s >> 4 << (j / 4 * 2);
    }
    for (i, &v) in x.iter().enumerate() {
        let q = (v * inverse_of(d * scales[i / 16] as f32)).round().clamp(-4.0, 3.0) as i8 + 4;
        block[at(i)] |= (q as u8 & 3) << shift(i);
        block[i % 32] |= (q as u8 >> 2) << (i / 32);
    }
}

fn scales(b: &[u8]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let (low, high) = (b[j % 8] >> (j / 8 * 4) & 15, b[8 + j % 4] >> (j / 4 * 2) & 3);
        (low | high << 4) as i8 - 32
    })
}

/// The byte of element i's low bits.
fn at(i: usize) -> usize {
    32 + i / 128 * 32 + i % 32
}

/// The place of element i in that byte.
fn shift(i: usize) -> usize {
    i / 32 % 4 * 2
}
