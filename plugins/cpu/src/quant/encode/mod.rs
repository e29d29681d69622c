//! f32 rows as quantised blocks, for caches, casts and whole models. Twins of the reference's encoders: the same
//! operations in the same order, so the same bytes.

mod few_bits;
mod k;
mod legacy;
mod levels;
mod scale_search;

use crate::simd::Isa;
use llmrt_plugin::DType;

/// Whether rows of f32 become this dtype.
pub fn is_supported(dtype: DType) -> bool {
    encoder(dtype).is_some()
}

/// Encodes whole blocks.
pub fn encode(isa: Isa, dtype: DType, x: &[f32], out: &mut [u8]) {
    if let Some(encode) = encoder(dtype) {
        encode(isa, x, out);
    }
}

/// Encodes whole blocks of one format.
type Encoder = fn(Isa, &[f32], &mut [u8]);

fn encoder(dtype: DType) -> Option<Encoder> {
    Some(match dtype {
        DType::Q4_0 => |_, x, out| legacy::q4_0(x, out),
        DType::Q4_1 => |_, x, out| legacy::q4_1(x, out),
        DType::Q5_0 => |_, x, out| legacy::q5_0(x, out),
        DType::Q5_1 => |_, x, out| legacy::q5_1(x, out),
        DType::Q8_0 => legacy::q8_0,
        DType::Q2_K => k::q2_k,
        DType::Q3_K => k::q3_k,
        DType::Q4_K => k::q4_k,
        DType::Q5_K => k::q5_k,
        DType::Q6_K => k::q6_k,
        DType::IQ4_NL => levels::iq4_nl,
        DType::IQ4_XS => levels::iq4_xs,
        DType::MXFP4 => levels::mxfp4,
        DType::TQ1_0 => |_, x, out| few_bits::tq1_0(x, out),
        DType::TQ2_0 => |_, x, out| few_bits::tq2_0(x, out),
        DType::Q1_0 => |_, x, out| few_bits::q1_0(x, out),
        DType::Q2_0 => |_, x, out| few_bits::q2_0(x, out),
        _ => return None,
    })
}

/// Writes a half at byte `at`; gives back what was written.
#[inline(always)]
fn put_half(block: &mut [u8], at: usize, v: f32) -> f32 {
    let bits = crate::simd::f32_to_f16(v);
    block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    crate::simd::f16_to_f32(bits)
}

/// 1 / d; 0 for 0.
#[inline(always)]
fn inverse_of(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { d.recip() }
}

/// The element farthest from 0, with its sign.
#[inline(always)]
fn peak(x: &[f32]) -> f32 {
    x.iter().copied().fold(0.0, |a: f32, b| if b.abs() > a.abs() { b } else { a })
}
