//! Q6_K: 16 sub-blocks of 16, elements q · d·s with q in -32..=31 and s an i8.
//!
//! Bytes: 128 of low nibbles, 64 of upper two bits, 16 of s, d. In each half of 128 elements, byte l of 64 nibbles
//! holds elements l and l + 64, byte l of 32 upper bits elements l, l + 32, l + 64, l + 96. q is stored plus 32.

use super::float::half_at;
use super::k_scales::fit_signed;
use super::legacy::inverse_of;

pub(super) fn decode(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 208);
    for i in 0..256 {
        let low = block[low_at(i)] >> (i / 64 % 2 * 4) & 15;
        let high = block[high_at(i)] >> (i / 32 % 4 * 2) & 3;
        let s = block[192 + i / 16] as i8;
        out.push(d * s as f32 * ((low | high << 4) as f32 - 32.0));
    }
}

pub(super) fn encode(x: &[f32], block: &mut [u8]) {
    let (d, scales) = fit_signed(x, 16, 32.0, 128.0, block, 208);
    block[..192].fill(0);
    for (i, &v) in x.iter().enumerate() {
        let s = scales[i / 16];
        block[192 + i / 16] = s as u8;
        let q = ((v * inverse_of(d * s as f32)).round().clamp(-32.0, 31.0) + 32.0) as u8;
        block[low_at(i)] |= (q & 15) << (i / 64 % 2 * 4);
        block[high_at(i)] |= q >> 4 << (i / 32 % 4 * 2);
    }
}

fn low_at(i: usize) -> usize {
    i / 128 * 64 + i % 64
}

fn high_at(i: usize) -> usize {
    128 + i / 128 * 32 + i % 32
}
