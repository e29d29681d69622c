//! Formats without a fast kernel, decoded one element at a time: rarely used, but the CPU is the last resort.

use super::code_book;
use crate::simd::f16_to_f32;
use llmrt_plugin::DType;

/// Whether this dtype is decoded here.
pub fn is_supported(dtype: DType) -> bool {
    decoder(dtype).is_some()
}

/// Decodes whole blocks.
pub fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let Some(decode) = decoder(dtype) else { return out.fill(f32::NAN) };
    let blocks = bytes.chunks_exact(dtype.block_bytes()).zip(out.chunks_exact_mut(dtype.block_elems()));
    blocks.for_each(|(block, out)| decode(block, out));
}

/// Decodes one block.
type Decoder = fn(&[u8], &mut [f32]);

fn decoder(dtype: DType) -> Option<Decoder> {
    Some(match dtype {
        DType::Q8_1 => q8_1,
        DType::Q8_K => q8_k,
        DType::Q1_0 => q1_0,
        DType::Q2_0 => q2_0,
        DType::TQ1_0 => tq1_0,
        DType::TQ2_0 => tq2_0,
        DType::NVFP4 => nvfp4,
        DType::IQ1_S => code_book::iq1_s,
        DType::IQ1_M => code_book::iq1_m,
        DType::IQ2_XXS => code_book::iq2_xxs,
        DType::IQ2_XS => code_book::iq2_xs,
        DType::IQ2_S => code_book::iq2_s,
        DType::IQ3_XXS => code_book::iq3_xxs,
        DType::IQ3_S => code_book::iq3_s,
        _ => return None,
    })
}

/// d F16, d · Σ q F16, 32 signed bytes; q · d.
fn q8_1(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    out.iter_mut().zip(&block[4..]).for_each(|(out, q)| *out = *q as i8 as f32 * d);
}

/// d F32, 256 signed bytes, sums; q · d.
fn q8_k(block: &[u8], out: &mut [f32]) {
    let d = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    out.iter_mut().zip(&block[4..]).for_each(|(out, q)| *out = *q as i8 as f32 * d);
}

/// d F16, a bit per element: d if it is set, -d if not.
fn q1_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = if bits(&block[2..], i, 1) == 1 { d } else { -d };
    }
}

/// d F16, two bits per element; (q - 1) · d.
fn q2_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = (bits(&block[2..], i, 2) as f32 - 1.0) * d;
    }
}

/// Two bits per element, d F16; bits 2p.. of byte l of each 32 belong to element 32p + l; (q - 1) · d.
fn tq2_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 64);
    for (out, bytes) in out.chunks_exact_mut(128).zip(block.chunks_exact(32)) {
        for (p, out) in out.chunks_exact_mut(32).enumerate() {
            out.iter_mut().zip(bytes).for_each(|(out, b)| *out = ((b >> (2 * p) & 3) as f32 - 1.0) * d);
        }
    }
}

/// Base-3 digits as fractions of 256 (32 bytes of five, 16 of five, 4 of four), d F16; (digit - 1) · d.
/// The first digits of a run of bytes come first, then the second digits.
fn tq1_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 52);
    let mut out = out.iter_mut();
    for (start, end, n_digits) in [(0, 32, 5), (32, 48, 5), (48, 52, 4)] {
        let mut shift = 1u8;
        for _ in 0..n_digits {
            for (b, out) in block[start..end].iter().zip(&mut out) {
                let digit = b.wrapping_mul(shift) as u32 * 3 / 256;
                *out = (digit as f32 - 1.0) * d;
            }
            shift = shift.wrapping_mul(3);
        }
    }
}

/// The sixteen numbers of E2M1.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Four scales (unsigned E4M3), then 16 × E2M1 for each: byte j holds elements j and j + 8.
fn nvfp4(block: &[u8], out: &mut [f32]) {
    let (scales, bytes) = block.split_at(4);
    for ((out, scale), bytes) in out.chunks_exact_mut(16).zip(scales).zip(bytes.chunks_exact(8)) {
        let (exponent, fraction) = (*scale as i32 >> 3 & 15, (scale & 7) as f32);
        let d = match exponent {
            _ if *scale == 0x7f => 0.0,
            0 => fraction * 2f32.powi(-9),
            _ => (8.0 + fraction) * 2f32.powi(exponent - 10),
        };
        for (j, b) in bytes.iter().enumerate() {
            out[j] = E2M1[(b & 15) as usize] * d;
            out[j + 8] = E2M1[(b >> 4) as usize] * d;
        }
    }
}

/// Number `i` of `n` bits, lowest bits first.
fn bits(bytes: &[u8], i: usize, n: usize) -> u8 {
    bytes[i * n / 8] >> (i * n % 8) & ((1 << n) - 1)
}

pub(super) fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}
