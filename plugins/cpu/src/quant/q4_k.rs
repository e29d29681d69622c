//! Q4_K: d, dmin F16, 8 scales and 8 minima of 6 bits, 256 × 4 bits; q · d · scale - dmin · minimum.
//! 32 bytes hold two groups: the low bits the even one, the high bits the odd one.

use super::{Format, Group, Plane, Rows, byte, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// q · d · scale - dmin · minimum.
pub enum Q4K {}

impl Format for Q4K {
    const DTYPE: DType = DType::Q4_K;
    const OFFSET: i32 = 0;
    const GROUPS: usize = 8;
    const UNITS: &[(usize, usize)] = &[(4, 36)];
    const PLANES: &[Plane] = &[Plane::nibbles(16, 128, 32)];
    type Group = Group<1, 1, 4>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        let mask = s.splat_i(0x0f0f_0f0f);
        for (pair, out) in out.chunks_exact_mut(2).enumerate() {
            let q = words_32(s, rows, 16 + 32 * pair);
            for j in 0..8 {
                s.store_b(s.and(q[j], mask), &mut out[0].q[j]);
                s.store_b(s.and(s.shr(q[j], 4), mask), &mut out[1].q[j]);
            }
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        unpack_scales(s, rows.words(s, 0), out);
    }
}

/// The first 16 bytes of Q4_K and Q5_K. Scales and minima of groups 0..4 are the low six bits of bytes 0..4 and 4..8;
/// those of groups 4..8 have their low four bits in bytes 8..12 and their upper two on top of the former.
#[inline(always)]
pub(super) fn unpack_scales<S: Simd, const BITS: u32>(s: S, head: [S::I; 4], out: &mut [Group<1, 1, BITS>]) {
    let d = s.halves(head[0]);
    let minus_dmin = s.sub(s.zero(), s.halves(s.shr(head[0], 16)));
    let low = |v: S::I, bits: i32| s.and(v, s.splat_i(bits));
    for i in 0..4 {
        let (scale, minimum, both) = (byte(s, head[1], i), byte(s, head[2], i), byte(s, head[3], i));
        let later_scale = s.or(low(both, 15), s.shl(s.shr(scale, 6), 4));
        let later_minimum = s.or(s.shr(both, 4), s.shl(s.shr(minimum, 6), 4));
        for (g, scale, minimum) in
            [(i, low(scale, 63), low(minimum, 63)), (i + 4, later_scale, later_minimum)]
        {
            s.store(s.mul(d, s.float(scale)), &mut out[g].d[0]);
            s.store(s.mul(minus_dmin, s.float(minimum)), &mut out[g].m[0]);
        }
    }
}
