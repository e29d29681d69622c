//! Formats of tensor elements: how blocks become f32 numbers and back. One file per format or small family.
//!
//! These define what the formats mean and are written to be read; plugins have fast versions, tested against these.
//! To add a format: a row in `abi/src/dtype.rs`, its file, a `mod` line and an arm of [`format`].

mod float;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod k_scales;
mod legacy;
mod low_bit;
mod mxfp4;
mod nvfp4;
mod q2_k;
mod q3_k;
mod q4_k;
mod q6_k;
mod q8_k;
mod scale_search;
mod ternary;
mod validity;

#[cfg(test)]
mod tests;

pub use float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use validity::find_invalid;

use llmrt_abi::DType;

/// Types of matrices that most files have: what kernels are made and measured for.
pub const COMMON: [DType; 16] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];

/// Appends the elements of one block.
type Decode = fn(&[u8], &mut Vec<f32>);
/// Fills one block.
type Encode = fn(&[f32], &mut [u8]);

/// Decoder and encoder of a dtype. Integers have neither; some formats cannot be written here.
fn format(dtype: DType) -> Option<(Decode, Option<Encode>)> {
    Some(match dtype {
        DType::F32 => (float::decode_f32, Some(float::encode_f32)),
        DType::F16 => (float::decode_f16, Some(float::encode_f16)),
        DType::BF16 => (float::decode_bf16, Some(float::encode_bf16)),
        DType::F64 => (float::decode_f64, Some(float::encode_f64)),
        DType::Q4_0 => (legacy::decode_q4_0, Some(legacy::encode_q4_0)),
        DType::Q4_1 => (legacy::decode_q4_1, Some(legacy::encode_q4_1)),
        DType::Q5_0 => (legacy::decode_q5_0, Some(legacy::encode_q5_0)),
        DType::Q5_1 => (legacy::decode_q5_1, Some(legacy::encode_q5_1)),
        DType::Q8_0 => (legacy::decode_q8_0, Some(legacy::encode_q8_0)),
        DType::Q8_1 => (legacy::decode_q8_1, None),
        DType::Q2_K => (q2_k::decode, Some(q2_k::encode)),
        DType::Q3_K => (q3_k::decode, Some(q3_k::encode)),
        DType::Q4_K => (q4_k::decode_q4_k, Some(q4_k::encode_q4_k)),
        DType::Q5_K => (q4_k::decode_q5_k, Some(q4_k::encode_q5_k)),
        DType::Q6_K => (q6_k::decode, Some(q6_k::encode)),
        DType::Q8_K => (q8_k::decode, None),
        DType::IQ1_S => (iq1::decode_s, None),
        DType::IQ1_M => (iq1::decode_m, None),
        DType::IQ2_XXS => (iq2::decode_xxs, None),
        DType::IQ2_XS => (iq2::decode_xs, None),
        DType::IQ2_S => (iq2::decode_s, None),
        DType::IQ3_XXS => (iq3::decode_xxs, None),
        DType::IQ3_S => (iq3::decode_s, None),
        DType::IQ4_NL => (iq4::decode_iq4_nl, Some(iq4::encode_iq4_nl)),
        DType::IQ4_XS => (iq4::decode_iq4_xs, Some(iq4::encode_iq4_xs)),
        DType::TQ1_0 => (ternary::decode_tq1_0, Some(ternary::encode_tq1_0)),
        DType::TQ2_0 => (ternary::decode_tq2_0, Some(ternary::encode_tq2_0)),
        DType::Q1_0 => (low_bit::decode_q1_0, Some(low_bit::encode_q1_0)),
        DType::Q2_0 => (low_bit::decode_q2_0, Some(low_bit::encode_q2_0)),
        DType::MXFP4 => (mxfp4::decode, Some(mxfp4::encode)),
        DType::NVFP4 => (nvfp4::decode, None),
        _ => return None,
    })
}

/// Whether blocks of this dtype can be decoded to f32.
pub fn is_supported(dtype: DType) -> bool {
    format(dtype).is_some()
}

/// Whether f32 numbers can be encoded in this dtype.
pub fn can_encode(dtype: DType) -> bool {
    format(dtype).is_some_and(|(_, encode)| encode.is_some())
}

/// Appends the elements of one block (`block_bytes` bytes, little-endian). A dtype that is not supported gives NaN.
pub fn decode_block(dtype: DType, block: &[u8], out: &mut Vec<f32>) {
    match format(dtype) {
        Some((decode, _)) => decode(block, out),
        None => out.resize(out.len() + dtype.block_elems(), f32::NAN),
    }
}

/// Fills one block from its `block_elems` elements, which are finite; rounds to nearest. A dtype that cannot be
/// encoded is left as it is.
pub fn encode_block(dtype: DType, x: &[f32], block: &mut [u8]) {
    if let Some((_, Some(encode))) = format(dtype) {
        encode(x, block);
    }
}

/// The elements of whole blocks; bytes after the last whole block are ignored.
pub fn dequantise(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut x = Vec::with_capacity(bytes.len() / dtype.block_bytes() * dtype.block_elems());
    bytes.chunks_exact(dtype.block_bytes()).for_each(|block| decode_block(dtype, block, &mut x));
    x
}

/// Blocks of these elements; elements after the last whole block are ignored.
pub fn quantise(dtype: DType, x: &[f32]) -> Vec<u8> {
    let blocks = x.chunks_exact(dtype.block_elems());
    let mut bytes = vec![0; blocks.len() * dtype.block_bytes()];
    let places = bytes.chunks_exact_mut(dtype.block_bytes());
    blocks.zip(places).for_each(|(x, block)| encode_block(dtype, x, block));
    bytes
}
