//! The vector trait on 64-bit ARM: four registers. Advanced SIMD is part of the architecture; what differs among machines
//! is how bytes are multiplied.

use super::{Simd, array, neon_dot::Dot};
use std::arch::aarch64::*;

/// Advanced SIMD, with a way to multiply bytes.
#[derive(Clone, Copy, Debug)]
pub struct Neon<D>(pub D);

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];

/// Methods of one expression per register; `$i` is its number.
macro_rules! lanes {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = |$i:ident| $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $ret {
            // SAFETY: the instructions are part of the architecture; memory operands are in bounds.
            array(|$i| unsafe { $body })
        }
    )*};
}

impl<D: Dot> Simd for Neon<D> {
    type F = F;
    type I = I;
    type Run = I;
    const CENTRE: i32 = D::CENTRE;
    const WIDE: bool = false;

    lanes! {
        fn splat(v: f32) -> F = |_i| vdupq_n_f32(v);
        fn load(v: &[f32; 16]) -> F = |i| vld1q_f32(v.as_ptr().add(4 * i));
        fn add(a: F, b: F) -> F = |i| vaddq_f32(a[i], b[i]);
        fn sub(a: F, b: F) -> F = |i| vsubq_f32(a[i], b[i]);
        fn mul(a: F, b: F) -> F = |i| vmulq_f32(a[i], b[i]);
        fn div(a: F, b: F) -> F = |i| vdivq_f32(a[i], b[i]);
        fn fma(a: F, b: F, c: F) -> F = |i| vfmaq_f32(c[i], a[i], b[i]);
        fn max(a: F, b: F) -> F = |i| vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]);
        fn above(a: F, b: F, x: F, y: F) -> F = |i| vbslq_f32(vcgtq_f32(a[i], b[i]), x[i], y[i]);
        fn round(v: F) -> I = |i| vcvtnq_s32_f32(v[i]);
        fn float(v: I) -> F = |i| vcvtq_f32_s32(v[i]);
        fn bits(v: F) -> I = |i| vreinterpretq_s32_f32(v[i]);
        fn from_bits(v: I) -> F = |i| vreinterpretq_f32_s32(v[i]);
        fn splat_i(v: i32) -> I = |_i| vdupq_n_s32(v);
        fn load_b(v: &[u8; 64]) -> I = |i| vreinterpretq_s32_u8(vld1q_u8(v.as_ptr().add(16 * i)));
        fn add_i(a: I, b: I) -> I = |i| vaddq_s32(a[i], b[i]);
        fn sub_i(a: I, b: I) -> I = |i| vsubq_s32(a[i], b[i]);
        fn mul_i(a: I, b: I) -> I = |i| vmulq_s32(a[i], b[i]);
        fn and(a: I, b: I) -> I = |i| vandq_s32(a[i], b[i]);
        fn or(a: I, b: I) -> I = |i| vorrq_s32(a[i], b[i]);
        fn xor(a: I, b: I) -> I = |i| veorq_s32(a[i], b[i]);
        fn shl(a: I, n: u32) -> I = |i| vshlq_s32(a[i], vdupq_n_s32(n as i32));
        fn shr(a: I, n: u32) -> I =
            |i| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[i]), vdupq_n_s32(-(n as i32))));
        fn lut(table: &[u8; 16], index: I) -> I =
            |i| vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table.as_ptr()), vreinterpretq_u8_s32(index[i])));
        fn load_u16(v: &[u8; 32]) -> I = |i| {
            let half = vreinterpret_u16_u8(vld1_u8(v.as_ptr().add(8 * i)));
            vreinterpretq_s32_u32(vmovl_u16(half))
        };
        fn load_f16(v: &[u8; 32]) -> F = |i| vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(v.as_ptr().add(8 * i))));
        fn halves(v: I) -> F =
            |i| vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(v[i]))));
    }

    #[inline(always)]
    fn store(self, v: F, to: &mut [f32; 16]) {
        for (v, to) in v.into_iter().zip(to.as_chunks_mut::<4>().0) {
            // SAFETY: `to` has room for the four lanes.
            unsafe { vst1q_f32(to.as_mut_ptr(), v) }
        }
    }

    #[inline(always)]
    fn begin(self, acc: I) -> I {
        acc
    }

    #[inline(always)]
    fn end(self, run: I, _acc: I) -> I {
        run
    }

    #[inline(always)]
    fn sum(self, v: F) -> f32 {
        // SAFETY: part of the architecture.
        unsafe {
            let four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }

    #[inline(always)]
    fn store_b(self, v: I, to: &mut [u8; 64]) {
        for (v, to) in v.into_iter().zip(to.as_chunks_mut::<16>().0) {
            // SAFETY: `to` has room for the 16 bytes.
            unsafe { vst1q_u8(to.as_mut_ptr(), vreinterpretq_u8_s32(v)) }
        }
    }

    #[inline(always)]
    fn transpose(self, rows: &[u8], stride: usize) -> [I; 4] {
        assert!(15 * stride + 16 <= rows.len(), "16 rows {stride} apart in {} bytes", rows.len());
        // SAFETY: the assertion covers the last of the loads.
        let quarters: [[int32x4_t; 4]; 4] =
            array(|quarter| unsafe { transpose(rows.as_ptr().add(4 * quarter * stride), stride) });
        array(|j| array(|quarter| quarters[quarter][j]))
    }

    #[inline(always)]
    fn gather_f16(self, rows: &[u8], stride: usize) -> F {
        let mut halves = [0; 32];
        for (r, half) in halves.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *half = [rows[r * stride], rows[r * stride + 1]];
        }
        self.load_f16(&halves)
    }

    // Not closures: these would not always be inlined, and have no features that instructions of `D` need.
    #[inline(always)]
    fn dot4(self, acc: I, u: I, i: I) -> I {
        let dot = self.0;
        [
            dot.dot4(acc[0], u[0], i[0]),
            dot.dot4(acc[1], u[1], i[1]),
            dot.dot4(acc[2], u[2], i[2]),
            dot.dot4(acc[3], u[3], i[3]),
        ]
    }

    #[inline(always)]
    fn dot4_full(self, acc: I, u: I, i: I) -> I {
        let dot = self.0;
        [
            dot.dot4_full(acc[0], u[0], i[0]),
            dot.dot4_full(acc[1], u[1], i[1]),
            dot.dot4_full(acc[2], u[2], i[2]),
            dot.dot4_full(acc[3], u[3], i[3]),
        ]
    }

    #[inline(always)]
    fn store_f16(self, v: F, to: &mut [u8; 32]) {
        for (v, to) in v.into_iter().zip(to.as_chunks_mut::<8>().0) {
            // SAFETY: `to` has room for the four halves; F16 and back is part of the architecture.
            unsafe { vst1_u8(to.as_mut_ptr(), vreinterpret_u8_f16(vcvt_f16_f32(v))) }
        }
    }

    #[inline(always)]
    fn load_i8(self, v: &[u8; 16]) -> I {
        // SAFETY: 16 bytes are read from 16.
        unsafe {
            let v = vreinterpretq_s8_u8(vld1q_u8(v.as_ptr()));
            let (low, high) = (vmovl_s8(vget_low_s8(v)), vmovl_s8(vget_high_s8(v)));
            [
                vmovl_s16(vget_low_s16(low)),
                vmovl_s16(vget_high_s16(low)),
                vmovl_s16(vget_low_s16(high)),
                vmovl_s16(vget_high_s16(high)),
            ]
        }
    }

    #[inline(always)]
    fn store_i8(self, v: I, to: &mut [u8; 16]) {
        // SAFETY: 16 bytes are written to 16.
        unsafe {
            let low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
            let high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
            vst1q_s8(to.as_mut_ptr().cast(), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        }
    }

    #[inline(always)]
    fn peak(self, v: F) -> f32 {
        // SAFETY: part of the architecture.
        unsafe { vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(v[0], v[1]), vmaxnmq_f32(v[2], v[3]))) }
    }
}

/// Four rows: lane r of vector j has bytes 4j.. of row r.
///
/// # Safety
/// 16 bytes are readable at `p + r · stride` for r < 4.
#[inline(always)]
unsafe fn transpose(p: *const u8, stride: usize) -> [int32x4_t; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let row = |r: usize| vreinterpretq_s32_u8(vld1q_u8(p.add(r * stride)));
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        let (ab_even, ab_odd) = (vtrn1q_s32(a, b), vtrn2q_s32(a, b));
        let (cd_even, cd_odd) = (vtrn1q_s32(c, d), vtrn2q_s32(c, d));
        let wide = |v: int32x4_t| vreinterpretq_s64_s32(v);
        [
            vreinterpretq_s32_s64(vtrn1q_s64(wide(ab_even), wide(cd_even))),
            vreinterpretq_s32_s64(vtrn1q_s64(wide(ab_odd), wide(cd_odd))),
            vreinterpretq_s32_s64(vtrn2q_s64(wide(ab_even), wide(cd_even))),
            vreinterpretq_s32_s64(vtrn2q_s64(wide(ab_odd), wide(cd_odd))),
        ]
    }
}
