//! Numbers and their bytes, for every element type.

use crate::sys::*;
use half::{bf16, f16};

/// A signed number of 4 bits; the even one is in the low half.
pub fn nibble(byte: u8, high: usize) -> f64 {
    f64::from(((byte >> (4 * high)) << 4) as i8 >> 4)
}

/// A number from its bytes.
#[inline(always)] // loops over one type choose it once
pub fn decode(dtype: aclDataType, b: &[u8]) -> f64 {
    match dtype {
        ACL_FLOAT => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_FLOAT16 => f16::from_le_bytes([b[0], b[1]]).into(),
        ACL_BF16 => bf16::from_le_bytes([b[0], b[1]]).into(),
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
#[inline(always)]
pub fn encode(dtype: aclDataType, v: f64) -> [u8; 8] {
    let mut out = [0; 8];
    let mut set = |bytes: &[u8]| out[..bytes.len()].copy_from_slice(bytes);
    match dtype {
        ACL_FLOAT => set(&(v as f32).to_le_bytes()),
        ACL_FLOAT16 => set(&f16::from_f64(v).to_le_bytes()),
        ACL_BF16 => set(&bf16::from_f32(v as f32).to_le_bytes()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_numbers_come_back_and_ties_go_to_even() {
        let bits = |dtype, v| u16::from_le_bytes([encode(dtype, v)[0], encode(dtype, v)[1]]);
        let (to_f16, to_bf16) = (|v| bits(ACL_FLOAT16, v), |v| bits(ACL_BF16, v));
        let from_f16 = |h: u16| decode(ACL_FLOAT16, &h.to_le_bytes());
        for h in (0..=u16::MAX).filter(|h| !from_f16(*h).is_nan()) {
            assert_eq!(to_f16(from_f16(h)), h, "{h:#x}");
        }
        assert_eq!((to_f16(1.0), to_f16(65_504.0), to_f16(65_520.0)), (0x3c00, 0x7bff, 0x7c00));
        assert_eq!((to_f16(1.0 + 1.0 / 2048.0), to_f16(1.0 + 3.0 / 2048.0)), (0x3c00, 0x3c02));
        assert_eq!((to_bf16(1.0), to_bf16(-2.5)), (0x3f80, 0xc020));
    }
}
