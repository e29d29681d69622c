//! Q3_K: 256 third bits, 256 low two bits, 16 scales of 6 bits, d F16; (q - 4) · d · (scale - 32), a scale per 16 elements.
//! Third bit g of byte l belongs to element l of group g; two bits 2i.. of byte l of a half to element l of its group i.

use super::{Format, Group, Plane, Rows, byte, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// (q - 4) · d · (scale - 32).
pub enum Q3K {}

impl Format for Q3K {
    const DTYPE: DType = DType::Q3_K;
    const OFFSET: i32 = 4;
    const GROUPS: usize = 8;
    const UNITS: &[(usize, usize)] = &[(4, 27), (2, 1)];
    const PLANES: &[Plane] = &[
        Plane { start: 32, n_bytes: 64, bits: 2, run: 32, up: 0 },
        Plane { start: 0, n_bytes: 32, bits: 1, run: 32, up: 2 },
    ];
    type Group = Group<2, 0, 3>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        let third = words_32(s, rows, 0);
        for (half, out) in out.chunks_exact_mut(4).enumerate() {
            let low = words_32(s, rows, 32 + 32 * half);
            for (i, out) in out.iter_mut().enumerate() {
                for j in 0..8 {
                    let two = s.and(s.shr(low[j], 2 * i as u32), s.splat_i(0x0303_0303));
                    let one = s.and(s.shr(third[j], (4 * half + i) as u32), s.splat_i(0x0101_0101));
                    s.store_b(s.or(two, s.shl(one, 2)), &mut out.q[j]);
                }
            }
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        unpack_scales(s, rows, out);
    }
}

/// Scales 0..8 have their low four bits in the low bits of bytes 0..8, scales 8..16 in the high bits;
/// the upper two bits of scale i are bits 2(i/4).. of byte 8 + i mod 4.
#[inline(always)]
fn unpack_scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Group<2, 0, 3>]) {
    let [_, bytes @ ..] = rows.words(s, 92); // from the word before the scales on, so as not to reach past the block
    let d = rows.f16(s, 108);
    for i in 0..16 {
        let low = byte(s, bytes[i / 4 % 2], i % 4);
        let low = s.and(s.shr(low, if i < 8 { 0 } else { 4 }), s.splat_i(15));
        let high = s.and(s.shr(byte(s, bytes[2], i % 4), 2 * (i / 4) as u32), s.splat_i(3));
        let scale = s.sub_i(s.or(low, s.shl(high, 4)), s.splat_i(32));
        s.store(s.mul(d, s.float(scale)), &mut out[i / 2].d[i % 2]);
    }
}
