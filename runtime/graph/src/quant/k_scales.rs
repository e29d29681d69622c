//! What the K formats share: super-blocks of 256 whose sub-blocks have small integer scales.

use super::float::put_half;
use super::legacy::{inverse_of, largest_magnitude, round_to};
use super::scale_search::{scale_and_minimum, signed_scale};

/// Scale and minimum (6 bits each) of the 8 sub-blocks of Q4_K and Q5_K, from 12 bytes: bytes 0–3 hold the scales and
/// 4–7 the minimums 0–3; bytes 8–11 the low nibbles of 4–7, whose upper two bits are those of bytes 0–7.
pub(super) fn six_bit_pairs(b: &[u8]) -> [(u8, u8); 8] {
    std::array::from_fn(|j| match j {
        0..4 => (b[j] & 63, b[j + 4] & 63),
        _ => (b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4),
    })
}

/// The inverse of [`six_bit_pairs`].
pub(super) fn put_six_bit_pairs(b: &mut [u8], pairs: &[(u8, u8); 8]) {
    for j in 0..4 {
        let ((scale, min), (scale_4, min_4)) = (pairs[j], pairs[j + 4]);
        b[j] = scale | scale_4 >> 4 << 6;
        b[j + 4] = min | min_4 >> 4 << 6;
        b[j + 8] = scale_4 & 15 | (min_4 & 15) << 4;
    }
}

/// Scale and minimum of sub-blocks of `n` elements as integers up to `max_int`; writes the two halves that they
/// multiply (at bytes `d_at` and `d_at + 2`). Elements are then q · scale - min with q in 0..=max_q.
pub(super) fn fit_pairs(
    x: &[f32],
    n: usize,
    max_q: u8,
    max_int: u8,
    block: &mut [u8],
    d_at: usize,
) -> Vec<(u8, u8)> {
    let ranges: Vec<(f32, f32)> = x.chunks_exact(n).map(|sub| scale_and_minimum(sub, max_q as f32)).collect();
    let (scale, min) = ranges.iter().fold((0f32, 0f32), |(s, m), r| (s.max(r.0), m.max(r.1)));
    let d = put_half(block, d_at, scale / max_int as f32);
    let d_min = put_half(block, d_at + 2, min / max_int as f32);
    let as_int = |v: f32, d: f32| round_to(v * inverse_of(d), max_int);
    ranges.iter().map(|&(scale, min)| (as_int(scale, d), as_int(min, d_min))).collect()
}

/// Scales of sub-blocks of `n` elements as integers -max_int..=max_int - 1; gives what they multiply, which it writes,
/// and them. Elements are then q · scale with q in -max_q..max_q.
pub(super) fn fit_signed(
    x: &[f32],
    n: usize,
    max_q: f32,
    max_int: f32,
    block: &mut [u8],
    d_at: usize,
) -> (f32, Vec<i8>) {
    signed_integers(x.chunks_exact(n).map(|sub| signed_scale(sub, max_q)).collect(), max_int, block, d_at)
}

/// Scales as integers -max_int..=max_int - 1; writes the half that they multiply.
pub(super) fn signed_integers(
    scales: Vec<f32>,
    max_int: f32,
    block: &mut [u8],
    d_at: usize,
) -> (f32, Vec<i8>) {
    let d = put_half(block, d_at, largest_magnitude(&scales) / -max_int);
    let as_int = |s: &f32| (s * inverse_of(d)).round().clamp(-max_int, max_int - 1.0) as i8;
    (d, scales.iter().map(as_int).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bit_pairs_come_back() {
        let pairs = std::array::from_fn(|j| ((j * 9) as u8, 63 - (j * 7) as u8));
        let mut bytes = [0; 12];
        put_six_bit_pairs(&mut bytes, &pairs);
        assert_eq!(six_bit_pairs(&bytes), pairs);
    }
}
