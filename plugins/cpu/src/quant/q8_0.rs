//! Q8_0: d F16, 32 signed bytes, q · d. The bytes are made unsigned by adding 128.

use super::{Format, Group, Plane, Rows, store_integers, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// q · d.
pub enum Q8_0 {}

impl Format for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const OFFSET: i32 = 128;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 1), (4, 8)];
    const PLANES: &[Plane] = &[Plane::bytes(2, 32)];
    type Group = Group<1, 0, 8>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        store_integers::<S, Self>(s, words_32(s, rows, 2), &mut out[0].q);
        Self::scales(s, rows, out);
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        s.store(rows.f16(s, 0), &mut out[0].d[0]);
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, stored: S::I) -> S::I {
        s.xor(stored, s.splat_i(0x8080_8080_u32 as i32))
    }
}
