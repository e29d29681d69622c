//! IQ4_NL: d F16, 32 × 4 bits, table[q] · d. IQ4_XS: d F16, 8 scales of 6 bits, 256 × 4 bits, table[q] · (scale - 32) · d.

use super::{Format, Group, Plane, Rows, nibbles, store_integers};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// The sixteen levels, plus 128.
const LEVELS: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// table[q] · d.
pub enum Iq4Nl {}

impl Format for Iq4Nl {
    const DTYPE: DType = DType::IQ4_NL;
    const OFFSET: i32 = 128;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 1), (4, 4)];
    const PLANES: &[Plane] = &[Plane::nibbles(2, 16, 16)];
    type Group = Group<1, 0, 8>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        store_integers::<S, Self>(s, nibbles(s, rows.words(s, 2)), &mut out[0].q);
        Self::scales(s, rows, out);
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        s.store(rows.f16(s, 0), &mut out[0].d[0]);
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, stored: S::I) -> S::I {
        s.lut(&LEVELS, stored)
    }
}

/// table[q] · (scale - 32) · d.
pub enum Iq4Xs {}

impl Format for Iq4Xs {
    const DTYPE: DType = DType::IQ4_XS;
    const OFFSET: i32 = 128;
    const GROUPS: usize = 8;
    const UNITS: &[(usize, usize)] = &[(4, 34)];
    const PLANES: &[Plane] = &[Plane::nibbles(8, 128, 16)];
    type Group = Group<1, 0, 8>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        for (g, out) in out.iter_mut().enumerate() {
            store_integers::<S, Self>(s, nibbles(s, rows.words(s, 8 + 16 * g)), &mut out.q);
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        let head = rows.words(s, 0); // d, the upper two bits of the scales; the lower four bits
        let d = s.halves(head[0]);
        for (g, out) in out.iter_mut().enumerate() {
            let low = s.and(s.shr(head[1], 4 * g as u32), s.splat_i(15));
            let high = s.and(s.shr(head[0], 16 + 2 * g as u32), s.splat_i(3));
            let scale = s.sub_i(s.or(low, s.shl(high, 4)), s.splat_i(32));
            s.store(s.mul(d, s.float(scale)), &mut out.d[0]);
        }
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, stored: S::I) -> S::I {
        s.lut(&LEVELS, stored)
    }
}
