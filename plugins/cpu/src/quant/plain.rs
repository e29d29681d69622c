//! Formats without a fast kernel, decoded one element at a time: rarely used, but the CPU is the last resort.

use crate::simd::f16_to_f32;
use llmrt_plugin::DType;

/// Whether this dtype is decoded here.
pub fn is_supported(dtype: DType) -> bool {
    matches!(dtype, DType::Q8_1)
}

/// Decodes whole blocks.
pub fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let blocks = bytes.chunks_exact(dtype.block_bytes()).zip(out.chunks_exact_mut(dtype.block_elems()));
    match dtype {
        DType::Q8_1 => blocks.for_each(|(block, out)| q8_1(block, out)),
        _ => out.fill(f32::NAN),
    }
}

/// d F16, d · Σ q F16, 32 signed bytes; q · d.
fn q8_1(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    out.iter_mut().zip(&block[4..]).for_each(|(out, q)| *out = *q as i8 as f32 * d);
}

fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}
