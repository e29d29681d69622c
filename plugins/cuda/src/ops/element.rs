//! Numbers as elements of dtypes.

use half::{bf16, f16};
use llmrt_plugin::DType;

/// A number as an element of a dtype, in the low bytes: the nearest, ties to even; integers drop the fraction.
pub fn element(dtype: Option<DType>, v: f32) -> Option<u64> {
    Some(match dtype? {
        DType::F32 => v.to_bits().into(),
        DType::F16 => f16::from_f32(v).to_bits().into(),
        DType::BF16 => bf16::from_f32(v).to_bits().into(),
        DType::F64 => f64::from(v).to_bits(),
        DType::I8 => u64::from(v as i8 as u8),
        DType::I16 => u64::from(v as i16 as u16),
        DType::I32 => u64::from(v as i32 as u32),
        DType::I64 => v as i64 as u64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f16(v: f32) -> u64 {
        element(Some(DType::F16), v).unwrap()
    }

    fn bf16(v: f32) -> u64 {
        element(Some(DType::BF16), v).unwrap()
    }

    #[test]
    fn numbers_of_16_bits_are_the_nearest() {
        for (v, bits) in
            [(0.0, 0), (-0.0, 0x8000), (1.0, 0x3c00), (-2.5, 0xc100), (65504.0, 0x7bff), (65519.9, 0x7bff)]
        {
            assert_eq!(f16(v), bits, "{v}");
        }
        for (v, bits) in [
            (65520.0, 0x7c00),
            (6.1035156e-5, 0x0400),
            (5.9604645e-8, 1),
            (2.9802322e-8, 0),
            (6.097_555e-5, 0x03ff),
        ] {
            assert_eq!(f16(v), bits, "{v}");
        }
        // Halfway between two: the even one.
        assert_eq!((f16(1.0 + 1.0 / 2048.0), f16(1.0 + 3.0 / 2048.0)), (0x3c00, 0x3c02));
        assert_eq!((f16(f32::NAN) & 0x7fff, f16(1.9999)), (0x7e00, 0x4000));
        assert_eq!((bf16(1.0), bf16(-2.5), bf16(f32::MAX)), (0x3f80, 0xc020, 0x7f80));
        assert_eq!(bf16(f32::NAN) & 0x7f80, 0x7f80);
    }
}
