//! MXFP4: a power of two (E8M0), 32 × E2M1. The numbers of E2M1 are halves, so q is twice the number, and d half the power.
//! Byte j of the 16 holds elements j (low bits) and j + 16 (high bits).

use super::{Format, Group, Plane, Rows, nibbles, store_integers};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// Twice the sixteen numbers, plus 12.
const LEVELS: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// table[q] · 2^(e - 128).
pub enum Mxfp4 {}

impl Format for Mxfp4 {
    const DTYPE: DType = DType::MXFP4;
    const OFFSET: i32 = 12;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(1, 1), (4, 4)];
    const PLANES: &[Plane] = &[Plane::nibbles(1, 16, 16)];
    type Group = Group<1, 0, 5, false>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        store_integers::<S, Self>(s, nibbles(s, rows.words(s, 1)), &mut out[0].q);
        Self::scales(s, rows, out);
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        // In two factors, since the smallest powers are no normal numbers.
        let e = rows.byte(s, 0);
        let (a, b) = (s.shr(e, 1), s.sub_i(e, s.shr(e, 1)));
        let power = |e| s.from_bits(s.shl(s.add_i(e, s.splat_i(127 - 64)), 23));
        s.store(s.mul(power(a), power(b)), &mut out[0].d[0]);
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, stored: S::I) -> S::I {
        s.lut(&LEVELS, stored)
    }
}
