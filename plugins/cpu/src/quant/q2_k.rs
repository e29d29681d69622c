//! Q2_K: 16 × (scale, minimum) of 4 bits, 256 × 2 bits, d, dmin F16; q · d · scale - dmin · minimum, both per 16 elements.
//! Two bits 2i.. of byte l of a half belong to element l of its group i.

use super::{Format, Group, Plane, Rows, byte, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// q · d · scale - dmin · minimum.
pub enum Q2K {}

impl Format for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const OFFSET: i32 = 0;
    const GROUPS: usize = 8;
    const UNITS: &[(usize, usize)] = &[(4, 20), (2, 2)];
    const PLANES: &[Plane] = &[Plane { start: 16, n_bytes: 64, bits: 2, run: 32, up: 0 }];
    type Group = Group<2, 2, 2>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        for (half, out) in out.chunks_exact_mut(4).enumerate() {
            let q = words_32(s, rows, 16 + 32 * half);
            for (i, out) in out.iter_mut().enumerate() {
                for j in 0..8 {
                    s.store_b(s.and(s.shr(q[j], 2 * i as u32), s.splat_i(0x0303_0303)), &mut out.q[j]);
                }
            }
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        let scales = rows.words(s, 0);
        let d = rows.f16(s, 80);
        let minus_dmin = s.sub(s.zero(), rows.f16(s, 82));
        for (g, out) in out.iter_mut().enumerate() {
            for h in 0..2 {
                let both = byte(s, scales[g / 2], g % 2 * 2 + h);
                s.store(s.mul(d, s.float(s.and(both, s.splat_i(15)))), &mut out.d[h]);
                s.store(s.mul(minus_dmin, s.float(s.shr(both, 4))), &mut out.m[h]);
            }
        }
    }
}
