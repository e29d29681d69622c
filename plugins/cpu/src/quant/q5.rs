//! Q5_0: d F16, 32 fifth bits, 32 × 4 bits, (q - 16) · d. Q5_1: d, m F16, the same bits, q · d + m.

use super::{Format, Group, Plane, Rows, nibbles};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// (q - 16) · d.
pub enum Q5_0 {}

impl Format for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const OFFSET: i32 = 16;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 1), (4, 5)];
    const PLANES: &[Plane] = &[Plane::nibbles(6, 16, 16), fifths(2)];
    type Group = Group<1, 0, 5>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        let [fifth, ..] = rows.words(s, 2);
        let q = nibbles(s, rows.words(s, 6));
        for (j, to) in out[0].q.iter_mut().enumerate() {
            s.store_b(s.or(q[j], fifth_bits(s, fifth, j)), to);
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        s.store(rows.f16(s, 0), &mut out[0].d[0]);
    }
}

/// q · d + m.
pub enum Q5_1 {}

impl Format for Q5_1 {
    const DTYPE: DType = DType::Q5_1;
    const OFFSET: i32 = 0;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 2), (4, 5)];
    const PLANES: &[Plane] = &[Plane::nibbles(8, 16, 16), fifths(4)];
    type Group = Group<1, 1, 5>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        Self::scales(s, rows, out);
        let [fifth, ..] = rows.words(s, 4);
        let q = nibbles(s, rows.words(s, 8));
        for (j, to) in out[0].q.iter_mut().enumerate() {
            s.store_b(s.or(q[j], fifth_bits(s, fifth, j)), to);
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        s.store(rows.f16(s, 0), &mut out[0].d[0]);
        s.store(rows.f16(s, 2), &mut out[0].m[0]);
    }
}

/// The fifth bits of 32 elements, from this byte on.
const fn fifths(start: usize) -> Plane {
    Plane { start, n_bytes: 4, bits: 1, run: 1, up: 4 }
}

/// Bits 4j..4j+4 of each lane as bit 4 of its four bytes.
#[inline(always)]
fn fifth_bits<S: Simd>(s: S, bits: S::I, j: usize) -> S::I {
    let four = s.and(s.shr(bits, 4 * j as u32), s.splat_i(15));
    // The product puts copies 0, 7, 14 and 21 places up; bit b of copy b lands at the bottom of byte b.
    let spread = s.mul_i(four, s.splat_i(0x0020_4081));
    s.shl(s.and(spread, s.splat_i(0x0101_0101)), 4)
}
