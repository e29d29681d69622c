//! One or two bits per element: TQ1_0, TQ2_0, Q1_0, Q2_0.

use super::{inverse_of, peak, put_half};

/// 0, 1 or 2 for -1, 0 or 1.
fn digit(v: f32) -> u8 {
    (v.round().clamp(-1.0, 1.0) + 1.0) as u8
}

/// Two bits each: byte l of each 32 holds elements l, l + 32, l + 64, l + 96; then the largest magnitude as d.
pub fn tq2_0(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<66>().0) {
        out.fill(0);
        let inverse = inverse_of(put_half(out, 64, peak(x).abs()));
        for (i, x) in x.iter().enumerate() {
            out[i / 128 * 32 + i % 32] |= digit(x * inverse) << (i / 32 % 4 * 2);
        }
    }
}

/// Five digits of base 3 in a byte as a fraction of 256, rounded up: 32 bytes, 16 bytes, then 4 bytes of four digits; d.
pub fn tq1_0(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<54>().0) {
        let inverse = inverse_of(put_half(out, 52, peak(x).abs()));
        let mut first = 0;
        for (start, n_bytes, n_digits) in [(0, 32, 5), (32, 16, 5), (48, 4, 4)] {
            for (m, byte) in out[start..start + n_bytes].iter_mut().enumerate() {
                let mut number = 0u32;
                for n in 0..5 {
                    let next = if n < n_digits { digit(x[first + n * n_bytes + m] * inverse) } else { 0 };
                    number = 3 * number + next as u32;
                }
                *byte = (256 * number).div_ceil(243) as u8;
            }
            first += n_digits * n_bytes;
        }
    }
}

/// The mean magnitude as d, then a sign bit each, set from 0 on.
pub fn q1_0(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<128>().0.iter().zip(out.as_chunks_mut::<18>().0) {
        out.fill(0);
        put_half(out, 0, x.iter().map(|v| v.abs()).sum::<f32>() / 128.0);
        for (i, x) in x.iter().enumerate() {
            out[2 + i / 8] |= ((*x >= 0.0) as u8) << (i % 8);
        }
    }
}

/// The largest magnitude as d, then two bits each.
pub fn q2_0(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<18>().0) {
        out.fill(0);
        let inverse = inverse_of(put_half(out, 0, peak(x).abs()));
        for (i, x) in x.iter().enumerate() {
            out[2 + i / 4] |= digit(x * inverse) << (i % 4 * 2);
        }
    }
}
