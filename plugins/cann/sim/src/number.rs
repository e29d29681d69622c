//! Numbers and their bytes, for every element type.

use crate::sys::*;

/// A signed number of 4 bits; the even one is in the low half.
pub fn nibble(byte: u8, high: usize) -> f64 {
    f64::from(((byte >> (4 * high)) << 4) as i8 >> 4)
}

/// A number from its bytes.
pub fn decode(dtype: aclDataType, b: &[u8]) -> f64 {
    match dtype {
        ACL_FLOAT => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_FLOAT16 => from_f16(u16::from_le_bytes([b[0], b[1]])),
        ACL_BF16 => f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16).into(),
        ACL_DOUBLE => f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
        ACL_INT8 => (b[0] as i8).into(),
        ACL_UINT8 => b[0].into(),
        ACL_BOOL => f64::from(u8::from(b[0] != 0)),
        ACL_INT16 => i16::from_le_bytes([b[0], b[1]]).into(),
        ACL_UINT16 => u16::from_le_bytes([b[0], b[1]]).into(),
        ACL_INT32 => i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_UINT32 => u32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_UINT64 => u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f64,
        _ => i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f64,
    }
}

/// A number's bytes, rounded to the nearest; whole numbers are cut off.
pub fn encode(dtype: aclDataType, v: f64) -> [u8; 8] {
    let mut out = [0; 8];
    let mut set = |bytes: &[u8]| out[..bytes.len()].copy_from_slice(bytes);
    match dtype {
        ACL_FLOAT => set(&(v as f32).to_le_bytes()),
        ACL_FLOAT16 => set(&to_f16(v).to_le_bytes()),
        ACL_BF16 => set(&to_bf16(v).to_le_bytes()),
        ACL_DOUBLE => set(&v.to_le_bytes()),
        ACL_INT8 => set(&[v as i8 as u8]),
        ACL_UINT8 => set(&[v as u8]),
        ACL_BOOL => set(&[u8::from(v != 0.0)]),
        ACL_INT16 => set(&(v as i16).to_le_bytes()),
        ACL_UINT16 => set(&(v as u16).to_le_bytes()),
        ACL_INT32 => set(&(v as i32).to_le_bytes()),
        ACL_UINT32 => set(&(v as u32).to_le_bytes()),
        ACL_UINT64 => set(&(v as u64).to_le_bytes()),
        _ => set(&(v as i64).to_le_bytes()),
    }
    out
}

/// A number as its type keeps it.
pub fn round_to(dtype: aclDataType, v: f64) -> f64 {
    decode(dtype, &encode(dtype, v))
}

fn from_f16(h: u16) -> f64 {
    let (sign, exponent, fraction) =
        (if h >> 15 == 0 { 1.0 } else { -1.0 }, (h >> 10) & 31, f64::from(h & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1024.0 + fraction) * 2f64.powi(i32::from(e) - 25),
    }
}

/// To the nearest, ties to even; too large becomes infinite.
fn to_f16(v: f64) -> u16 {
    let sign = if v.is_sign_negative() { 0x8000 } else { 0 };
    let a = v.abs();
    if a.is_nan() {
        return sign | 0x7e00;
    }
    // The step between neighbours at this size.
    let exponent = (a.to_bits() >> 52) as i32 - 1023;
    let step = exponent.max(-14) - 10;
    let n = (a * 2f64.powi(-step)).round_ties_even();
    if n * 2f64.powi(step) >= 65_520.0 {
        return sign | 0x7c00;
    }
    // A carry into the next exponent comes out right by itself.
    sign | (((step + 24) as u16) << 10).wrapping_add(n as u16)
}

fn to_bf16(v: f64) -> u16 {
    let bits = (v as f32).to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_numbers_come_back_and_ties_go_to_even() {
        for h in (0..=u16::MAX).filter(|h| !from_f16(*h).is_nan()) {
            assert_eq!(to_f16(from_f16(h)), h, "{h:#x}");
        }
        assert_eq!((to_f16(1.0), to_f16(65_504.0), to_f16(65_520.0)), (0x3c00, 0x7bff, 0x7c00));
        assert_eq!((to_f16(1.0 + 1.0 / 2048.0), to_f16(1.0 + 3.0 / 2048.0)), (0x3c00, 0x3c02));
        assert_eq!((to_bf16(1.0), to_bf16(-2.5)), (0x3f80, 0xc020));
    }
}
