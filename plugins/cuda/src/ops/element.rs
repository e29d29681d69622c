//! Numbers as elements of dtypes.

use llmrt_plugin::DType;

/// A number as an element of a dtype, in the low bytes; integers drop the fraction.
pub fn element(dtype: Option<DType>, v: f32) -> Option<u64> {
    Some(match dtype? {
        DType::F32 => v.to_bits().into(),
        DType::F16 => f16(v).into(),
        DType::BF16 => bf16(v).into(),
        DType::F64 => f64::from(v).to_bits(),
        DType::I8 => u64::from(v as i8 as u8),
        DType::I16 => u64::from(v as i16 as u16),
        DType::I32 => u64::from(v as i32 as u32),
        DType::I64 => v as i64 as u64,
        _ => return None,
    })
}

/// To the nearest of 16 bits, 8 of the exponent; ties to even, NaN stays one.
fn bf16(v: f32) -> u16 {
    let bits = v.to_bits();
    match v.is_nan() {
        true => (bits >> 16) as u16 | 0x40,
        false => ((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16,
    }
}

/// To the nearest of 16 bits, 5 of the exponent; ties to even, NaN stays one.
fn f16(v: f32) -> u16 {
    let (sign, size) = ((v.to_bits() >> 16) as u16 & 0x8000, v.abs());
    if v.is_nan() {
        return sign | 0x7e00;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // Below 2^-14 steps are 2^-24, above the exponent's ten bits less: the sum with a power of two rounds there.
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(-14);
    let power = f32::from_bits(((exponent - 10 + 23 + 127) as u32) << 23);
    let steps = (size + power - power) / f32::from_bits(((exponent - 10 + 127) as u32) << 23);
    // A whole 2048 is the next exponent's first; the carry makes it so. Numbers below 2^-14 have no first bit.
    sign | ((((exponent + 14) as u16) << 10) + steps as u16)
}

#[cfg(test)]
mod tests {
    use super::{bf16, f16};

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
