//! TQ1_0 and TQ2_0: elements -d, 0 or d.
//!
//! TQ2_0: 64 bytes of two-bit q + 1, byte l of each 32 holding elements l, l+32, l+64, l+96; d. TQ1_0: bytes of five
//! base-3 digits as a fraction of 256, so that multiplying by 3 brings out the next: 32 bytes for 160 elements, 16 for
//! 80, then 4 bytes of four digits for 16; d.

use super::float::{half_at, put_half};
use super::legacy::{inverse_of, largest_magnitude};

pub(super) fn decode_tq2_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 64);
    for i in 0..256 {
        let q = block[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        out.push((q as f32 - 1.0) * d);
    }
}

pub(super) fn encode_tq2_0(x: &[f32], block: &mut [u8]) {
    block.fill(0);
    let d = put_half(block, 64, largest_magnitude(x).abs());
    for (i, v) in x.iter().enumerate() {
        block[i / 128 * 32 + i % 32] |= digit(v * inverse_of(d)) << (i / 32 % 4 * 2);
    }
}

/// Bytes, and digits in each: runs of a TQ1_0 block.
const RUNS: [(std::ops::Range<usize>, u32); 3] = [(0..32, 5), (32..48, 5), (48..52, 4)];

pub(super) fn decode_tq1_0(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 52);
    for (bytes, n_digits) in RUNS {
        for n in 0..n_digits {
            for b in &block[bytes.clone()] {
                let fraction = b.wrapping_mul(3u8.wrapping_pow(n));
                let digit = (fraction as u16 * 3) >> 8;
                out.push((digit as f32 - 1.0) * d);
            }
        }
    }
}

pub(super) fn encode_tq1_0(x: &[f32], block: &mut [u8]) {
    let d = put_half(block, 52, largest_magnitude(x).abs());
    let inverse = inverse_of(d);
    let mut first = 0;
    for (bytes, n_digits) in RUNS {
        let len = bytes.len();
        for (m, b) in block[bytes].iter_mut().enumerate() {
            let digit_at = |n: u32| digit(x[first + n as usize * len + m] * inverse) as u32;
            // Four digits are padded to five. Rounding up makes every digit come out whole.
            let number = (0..5).fold(0, |v, n| v * 3 + if n < n_digits { digit_at(n) } else { 0 });
            *b = (number * 256).div_ceil(243) as u8;
        }
        first += len * n_digits as usize;
    }
}

/// 0, 1 or 2 for -1, 0 or 1.
fn digit(v: f32) -> u8 {
    (v.round().clamp(-1.0, 1.0) + 1.0) as u8
}
