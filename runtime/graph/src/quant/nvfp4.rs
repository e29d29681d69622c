//! NVFP4: blocks of 64 four-bit floats (E2M1) in four sub-blocks of 16, each with an unsigned 8-bit float (E4M3).
//!
//! Bytes: 4 scales, 4 × 8 of nibbles; byte j of a sub-block holds elements j (low) and j + 8 (high).

use super::mxfp4::DOUBLED;

pub(super) fn decode(block: &[u8], out: &mut Vec<f32>) {
    for (&scale, bytes) in block[..4].iter().zip(block[4..36].chunks_exact(8)) {
        // Elements are stored doubled.
        let d = ue4m3(scale) * 0.5;
        let nibbles = bytes.iter().map(|b| b & 15).chain(bytes.iter().map(|b| b >> 4));
        out.extend(nibbles.map(|q| DOUBLED[q as usize] as f32 * d));
    }
}

/// An unsigned float of 4 exponent bits (bias 7) and 3 fraction bits; 0x7f, its NaN, counts as 0.
fn ue4m3(bits: u8) -> f32 {
    let (exponent, fraction) = ((bits >> 3 & 15) as i32, (bits & 7) as f32);
    match (bits, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => fraction * 2f32.powi(-9),
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    }
}
