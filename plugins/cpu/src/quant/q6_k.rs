//! Q6_K: 256 low four bits, 256 upper two bits, 16 signed scales, d F16; (q - 32) · d · scale, a scale per 16 elements.
//! Each half of 128 elements has 64 bytes of low bits (groups 0 and 1 low, 2 and 3 high) and 32 of upper bits.

use super::{Format, Group, Plane, Rows, byte, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// (q - 32) · d · scale.
pub enum Q6K {}

impl Format for Q6K {
    const DTYPE: DType = DType::Q6_K;
    const OFFSET: i32 = 32;
    const GROUPS: usize = 8;
    const UNITS: &[(usize, usize)] = &[(4, 52), (2, 1)];
    const PLANES: &[Plane] =
        &[Plane::nibbles(0, 128, 64), Plane { start: 128, n_bytes: 64, bits: 2, run: 32, up: 4 }];
    type Group = Group<2, 0, 6>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        let (four, two) = (s.splat_i(0x0f0f_0f0f), s.splat_i(0x0303_0303));
        for (half, out) in out.chunks_exact_mut(4).enumerate() {
            let upper = words_32(s, rows, 128 + 32 * half);
            for part in 0..2 {
                let low = words_32(s, rows, 64 * half + 32 * part);
                for j in 0..8 {
                    let top = |g: usize| s.shl(s.and(s.shr(upper[j], 2 * g as u32), two), 4);
                    s.store_b(s.or(s.and(low[j], four), top(part)), &mut out[part].q[j]);
                    s.store_b(s.or(s.and(s.shr(low[j], 4), four), top(part + 2)), &mut out[part + 2].q[j]);
                }
            }
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        let d = rows.f16(s, 208);
        let scales = rows.words(s, 192);
        for (g, out) in out.iter_mut().enumerate() {
            for h in 0..2 {
                let i = 2 * g + h;
                let signed = s.sub_i(s.xor(byte(s, scales[i / 4], i % 4), s.splat_i(128)), s.splat_i(128));
                s.store(s.mul(d, s.float(signed)), &mut out.d[h]);
            }
        }
    }
}
