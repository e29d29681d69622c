//! Q4_0: d F16, 32 × 4 bits, (q - 8) · d. Q4_1: d, m F16, 32 × 4 bits, q · d + m.
//! Byte j of the 16 holds elements j (low bits) and j + 16 (high bits).

use super::{Format, Group, Plane, Rows, nibbles, store_integers};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// (q - 8) · d.
pub enum Q4_0 {}

impl Format for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
    const OFFSET: i32 = 8;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 1), (4, 4)];
    const PLANES: &[Plane] = &[Plane::nibbles(2, 16, 16)];
    type Group = Group<1, 0, 4>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        store_integers::<S, Self>(s, nibbles(s, rows.words(s, 2)), &mut out[0].q);
        Self::scales(s, rows, out);
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        s.store(rows.f16(s, 0), &mut out[0].d[0]);
    }
}

/// q · d + m.
pub enum Q4_1 {}

impl Format for Q4_1 {
    const DTYPE: DType = DType::Q4_1;
    const OFFSET: i32 = 0;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 2), (4, 4)];
    const PLANES: &[Plane] = &[Plane::nibbles(4, 16, 16)];
    type Group = Group<1, 1, 4>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        store_integers::<S, Self>(s, nibbles(s, rows.words(s, 4)), &mut out[0].q);
        Self::scales(s, rows, out);
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        s.store(rows.f16(s, 0), &mut out[0].d[0]);
        s.store(rows.f16(s, 2), &mut out[0].m[0]);
    }
}
