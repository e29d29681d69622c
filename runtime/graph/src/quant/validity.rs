//! Finds blocks that cannot be right: floats that are NaN or infinite, as elements or as scales.

use llmrt_abi::DType;

/// The first block of `bytes` with an element or scale that is not a finite number. Integers are always valid.
pub fn find_invalid(dtype: DType, bytes: &[u8]) -> Option<usize> {
    bytes.chunks_exact(dtype.block_bytes()).position(|block| !is_valid(dtype, block))
}

fn is_valid(dtype: DType, b: &[u8]) -> bool {
    let half = |at: usize| f16_is_finite(u16::from_le_bytes([b[at], b[at + 1]]));
    let float = |at: usize| f32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]).is_finite();
    match dtype {
        DType::F32 | DType::Q8_K => float(0),
        DType::F64 => b[7] & 0x7f != 0x7f || b[6] & 0xf0 != 0xf0,
        DType::BF16 => b[1] & 0x7f != 0x7f || b[0] & 0x80 != 0x80,
        DType::F16 | DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::Q1_0 | DType::Q2_0 => half(0),
        DType::Q4_1 | DType::Q5_1 | DType::Q8_1 | DType::Q4_K | DType::Q5_K => half(0) && half(2),
        DType::Q2_K => half(80) && half(82),
        DType::Q3_K => half(108),
        DType::Q6_K => half(208),
        DType::IQ4_NL | DType::IQ4_XS | DType::IQ1_S => half(0),
        DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S | DType::IQ3_XXS | DType::IQ3_S => half(0),
        DType::IQ1_M => f16_is_finite(super::iq1::scale_bits_m(b)),
        DType::TQ1_0 => half(52),
        DType::TQ2_0 => half(64),
        DType::MXFP4 => b[0] != 0xff,
        DType::NVFP4 => b[..4].iter().all(|s| s & 0x7f != 0x7f),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => true,
    }
}

fn f16_is_finite(bits: u16) -> bool {
    bits & 0x7c00 != 0x7c00
}
