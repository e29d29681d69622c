//! Q5_K: as Q4_K, with 256 fifth bits between the scales and the 4-bit parts: bit g of byte l is that of element l of group g.

use super::{Format, Group, Plane, Rows, q4_k::unpack_scales, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// q · d · scale - dmin · minimum.
pub enum Q5K {}

impl Format for Q5K {
    const DTYPE: DType = DType::Q5_K;
    const OFFSET: i32 = 0;
    const GROUPS: usize = 8;
    const UNITS: &[(usize, usize)] = &[(4, 44)];
    const PLANES: &[Plane] =
        &[Plane::nibbles(48, 128, 32), Plane { start: 16, n_bytes: 32, bits: 1, run: 32, up: 4 }];
    type Group = Group<1, 1, 5>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        let mask = s.splat_i(0x0f0f_0f0f);
        let fifth = words_32(s, rows, 16);
        let fifth = |j: usize, g: usize| s.shl(s.and(s.shr(fifth[j], g as u32), s.splat_i(0x0101_0101)), 4);
        for (pair, out) in out.chunks_exact_mut(2).enumerate() {
            let q = words_32(s, rows, 48 + 32 * pair);
            for j in 0..8 {
                s.store_b(s.or(s.and(q[j], mask), fifth(j, 2 * pair)), &mut out[0].q[j]);
                s.store_b(s.or(s.and(s.shr(q[j], 4), mask), fifth(j, 2 * pair + 1)), &mut out[1].q[j]);
            }
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        unpack_scales(s, rows.words(s, 0), out);
    }
}
