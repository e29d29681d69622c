//! The vector trait in plain Rust: the meaning of every operation, and the level for machines without known vectors.
//!
//! What takes many instructions per lane is called, not inlined: kernels of this level are half as large.

use super::{LANES, Simd};
use std::array::from_fn;

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

type F = [f32; LANES];
type I = [i32; LANES];

impl Simd for Scalar {
    type F = F;
    type I = I;
    type Run = I;
    const CENTRE: i32 = 0;
    const WIDE: bool = false;
    const TILED: bool = false;

    #[inline(always)]
    fn splat(self, v: f32) -> F {
        [v; LANES]
    }
    #[inline(always)]
    fn load(self, v: &[f32; 16]) -> F {
        *v
    }
    #[inline(always)]
    fn store(self, v: F, to: &mut [f32; 16]) {
        *to = v;
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(never)]
    fn div(self, a: F, b: F) -> F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(never)]
    fn fma(self, a: F, b: F, c: F) -> F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(never)]
    fn max(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(never)]
    fn above(self, a: F, b: F, x: F, y: F) -> F {
        from_fn(|i| if a[i] > b[i] { x[i] } else { y[i] })
    }
    #[inline(never)]
    fn sum(self, v: F) -> f32 {
        let eight: [f32; 8] = from_fn(|i| v[i] + v[i + 8]);
        let four: [f32; 4] = from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(never)]
    fn round(self, v: F) -> I {
        v.map(|v| v.round_ties_even() as i32)
    }
    #[inline(always)]
    fn float(self, v: I) -> F {
        v.map(|v| v as f32)
    }
    #[inline(always)]
    fn bits(self, v: F) -> I {
        v.map(|v| v.to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(self, v: I) -> F {
        v.map(|v| f32::from_bits(v as u32))
    }

    #[inline(always)]
    fn splat_i(self, v: i32) -> I {
        [v; LANES]
    }
    #[inline(always)]
    fn load_b(self, v: &[u8; 64]) -> I {
        from_fn(|i| i32::from_le_bytes(from_fn(|b| v[4 * i + b])))
    }
    #[inline(always)]
    fn store_b(self, v: I, to: &mut [u8; 64]) {
        for (to, v) in to.chunks_exact_mut(4).zip(v) {
            to.copy_from_slice(&v.to_le_bytes());
        }
    }
    #[inline(always)]
    fn add_i(self, a: I, b: I) -> I {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_i(self, a: I, b: I) -> I {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn mul_i(self, a: I, b: I) -> I {
        from_fn(|i| a[i].wrapping_mul(b[i]))
    }
    #[inline(always)]
    fn and(self, a: I, b: I) -> I {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or(self, a: I, b: I) -> I {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn xor(self, a: I, b: I) -> I {
        from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn shl(self, a: I, n: u32) -> I {
        a.map(|a| a << n)
    }
    #[inline(always)]
    fn shr(self, a: I, n: u32) -> I {
        a.map(|a| (a as u32 >> n) as i32)
    }
    #[inline(always)]
    fn begin(self, acc: I) -> I {
        acc
    }
    #[inline(always)]
    fn end(self, run: I, _acc: I) -> I {
        run
    }
    #[inline(never)]
    fn dot4(self, acc: I, u: I, i: I) -> I {
        from_fn(|lane| {
            let (u, i) = (u[lane].to_le_bytes(), i[lane].to_le_bytes());
            (0..4).fold(acc[lane], |sum, b| sum.wrapping_add(u[b] as i32 * (i[b] as i8) as i32))
        })
    }
    #[inline(always)]
    fn dot4_full(self, acc: I, u: I, i: I) -> I {
        self.dot4(acc, u, i)
    }
    #[inline(never)]
    fn lut(self, table: &[u8; 16], index: I) -> I {
        index.map(|v| i32::from_le_bytes(v.to_le_bytes().map(|b| table[b as usize & 15])))
    }

    #[inline(never)]
    fn transpose(self, rows: &[u8], stride: usize) -> [I; 4] {
        let dword = |row: usize, j: usize| {
            let at = row * stride + 4 * j;
            i32::from_le_bytes(from_fn(|b| rows[at + b]))
        };
        from_fn(|j| from_fn(|row| dword(row, j)))
    }
    #[inline(never)]
    fn gather_f16(self, rows: &[u8], stride: usize) -> F {
        from_fn(|row| f16_to_f32(u16::from_le_bytes([rows[row * stride], rows[row * stride + 1]])))
    }
    #[inline(never)]
    fn halves(self, v: I) -> F {
        v.map(|v| f16_to_f32(v as u16))
    }
    #[inline(never)]
    fn load_f16(self, v: &[u8; 32]) -> F {
        from_fn(|i| f16_to_f32(u16::from_le_bytes([v[2 * i], v[2 * i + 1]])))
    }
    #[inline(never)]
    fn store_f16(self, v: F, to: &mut [u8; 32]) {
        for (to, v) in to.chunks_exact_mut(2).zip(v) {
            to.copy_from_slice(&f32_to_f16(v).to_le_bytes());
        }
    }
    #[inline(always)]
    fn load_u16(self, v: &[u8; 32]) -> I {
        from_fn(|i| u16::from_le_bytes([v[2 * i], v[2 * i + 1]]) as i32)
    }
    #[inline(always)]
    fn load_i8(self, v: &[u8; 16]) -> I {
        v.map(|v| v as i8 as i32)
    }
    #[inline(always)]
    fn store_i8(self, v: I, to: &mut [u8; 16]) {
        *to = v.map(|v| v as u8);
    }
}

/// The value of an IEEE half: sign, 5 bits of exponent, 10 of fraction.
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = (bits as u32 & 0x8000) << 16;
    let (exponent, fraction) = (bits as u32 >> 10 & 31, bits as u32 & 1023);
    match exponent {
        // Subnormal: fraction · 2⁻²⁴, exact in f32.
        0 => f32::from_bits((fraction as f32 * 2f32.powi(-24)).to_bits() | sign),
        // Infinite or NaN; NaN is quiet, as the machine's conversion makes it.
        31 if fraction == 0 => f32::from_bits(sign | 0x7f80_0000),
        31 => f32::from_bits(sign | 0x7fc0_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The nearest IEEE half, ties to even.
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | (magnitude >> 13 & 1023) as u16;
    }
    // 65520 and above round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2⁻¹⁴ the unit is 2⁻²⁴; adding 1/2 in f32 makes the machine round to that unit.
    if magnitude < 0x3880_0000 {
        let rounded = f32::from_bits(magnitude) + 0.5;
        return sign | (rounded.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let odd = magnitude >> 13 & 1;
    sign | ((magnitude - (112 << 23) + 0xfff + odd) >> 13) as u16
}

/// The nearest bfloat16, ties to even; NaN stays NaN. Loops over it become vectors.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    // NaN may be as large as bits are; it is not taken.
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let rounded = if value.is_nan() { bits | 0x40_0000 } else { nearest };
    (rounded >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_to_f32_and_back() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if !value.is_nan() {
                assert_eq!(f32_to_f16(value), bits, "{value}");
            }
        }
    }

    #[test]
    fn floats_between_two_halves_go_to_the_nearer_or_the_even_one() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (f16_to_f32(bits), f16_to_f32(bits + 1));
            let middle = low / 2.0 + high / 2.0;
            assert_eq!(f32_to_f16(middle), bits + (bits & 1), "{middle}");
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() - 1)), bits);
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() + 1)), bits + 1);
        }
        assert_eq!(f32_to_f16(65519.0), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(-1e30), 0xfc00);
    }
    #[test]
    fn floats_round_to_the_nearest_bfloat16_and_ties_to_the_even_one() {
        let value = |bits: u16| f32::from_bits((bits as u32) << 16);
        for bits in (0..=u16::MAX).filter(|bits| !value(*bits).is_nan()) {
            assert_eq!(f32_to_bf16(value(bits)), bits);
        }
        for bits in 0..0x7f80u16 {
            let middle = value(bits).to_bits() + 0x8000;
            assert_eq!(f32_to_bf16(f32::from_bits(middle)), bits + (bits & 1), "{bits:#x}");
            assert_eq!(f32_to_bf16(f32::from_bits(middle - 1)), bits);
            assert_eq!(f32_to_bf16(f32::from_bits(middle + 1)), bits + 1);
            let negative = f32::from_bits(1 << 31 | middle);
            assert_eq!(f32_to_bf16(negative), 1 << 15 | (bits + (bits & 1)), "{negative}");
        }
        assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
        for nan in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, u32::MAX] {
            assert!(value(f32_to_bf16(f32::from_bits(nan))).is_nan(), "{nan:#x}");
        }
    }
}
