//! F16 and BF16 numbers to f32 and back, rounded to nearest, ties to even.

/// An IEEE half as f32; exact. A signalling NaN becomes quiet, as the processor's conversion makes it.
pub fn f16_to_f32(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// The nearest IEEE half; past its largest, infinity. NaN stays NaN.
pub fn f32_to_f16(x: f32) -> u16 {
    half::f16::from_f32(x).to_bits()
}

/// A bfloat16 as f32; exact.
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The nearest bfloat16. NaN stays NaN.
pub fn f32_to_bf16(x: f32) -> u16 {
    half::bf16::from_f32(x).to_bits()
}

pub(super) fn decode_f32(block: &[u8], out: &mut Vec<f32>) {
    out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
}

pub(super) fn encode_f32(x: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&x[0].to_le_bytes());
}

pub(super) fn decode_f16(block: &[u8], out: &mut Vec<f32>) {
    out.push(half_at(block, 0));
}

pub(super) fn encode_f16(x: &[f32], block: &mut [u8]) {
    put_half(block, 0, x[0]);
}

pub(super) fn decode_bf16(block: &[u8], out: &mut Vec<f32>) {
    out.push(bf16_to_f32(u16::from_le_bytes([block[0], block[1]])));
}

pub(super) fn encode_bf16(x: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&f32_to_bf16(x[0]).to_le_bytes());
}

pub(super) fn decode_f64(block: &[u8], out: &mut Vec<f32>) {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(block);
    out.push(f64::from_le_bytes(bytes) as f32);
}

pub(super) fn encode_f64(x: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&(x[0] as f64).to_le_bytes());
}

/// The half at byte `at`.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Writes a half at byte `at`; gives back what was written.
pub(super) fn put_half(block: &mut [u8], at: usize, x: f32) -> f32 {
    let bits = f32_to_f16(x);
    block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    f16_to_f32(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value of a half by its definition.
    fn half_by_definition(bits: u16) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (e, f) = ((bits >> 10 & 31) as i32, (bits & 1023) as f64);
        match e {
            0 => sign * f * 2f64.powi(-24),
            31 if f == 0.0 => sign * f64::INFINITY,
            31 => f64::NAN,
            _ => sign * (1024.0 + f) * 2f64.powi(e - 25),
        }
    }

    #[test]
    fn every_half_has_its_value_and_comes_back() {
        for bits in 0..=u16::MAX {
            let x = f16_to_f32(bits);
            let expected = half_by_definition(bits);
            if expected.is_nan() {
                assert!(x.is_nan() && f16_to_f32(f32_to_f16(x)).is_nan(), "{bits:#x}");
            } else {
                assert_eq!(x as f64, expected, "{bits:#x}");
                assert_eq!(f32_to_f16(x), bits, "{bits:#x}");
            }
        }
    }

    #[test]
    fn between_two_halves_the_nearer_wins_and_ties_go_to_even() {
        for bits in 0..0x7bffu16 {
            let (a, b) = (f16_to_f32(bits), f16_to_f32(bits + 1));
            let middle = a + (b - a) / 2.0;
            let even = bits + (bits & 1);
            assert_eq!(f32_to_f16(middle), even, "{bits:#x}");
            assert_eq!(f32_to_f16(middle.next_down()), bits);
            assert_eq!(f32_to_f16(middle.next_up()), bits + 1);
            assert_eq!(f32_to_f16(-middle), even | 0x8000);
        }
        assert_eq!(f32_to_f16(65519.996), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(f32::MAX), 0x7c00);
        assert_eq!(f32_to_f16(f32::MIN_POSITIVE), 0);
    }

    #[test]
    fn every_bfloat_comes_back_and_ties_go_to_even() {
        for bits in 0..=u16::MAX {
            let x = bf16_to_f32(bits);
            if x.is_nan() {
                assert!(bf16_to_f32(f32_to_bf16(x)).is_nan(), "{bits:#x}");
                continue;
            }
            assert_eq!(f32_to_bf16(x), bits);
            if x.is_finite() {
                let at = |low: u32| f32_to_bf16(f32::from_bits((bits as u32) << 16 | low));
                assert_eq!((at(0x7fff), at(0x8000), at(0x8001)), (bits, bits + (bits & 1), bits + 1));
            }
        }
    }
}
