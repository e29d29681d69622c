//! Dot products of bytes on 64-bit ARM, by what the machine has for them.
//!
//! The instructions stand in assembly: the standard library's functions for them are not stable yet.

use std::arch::{aarch64::*, asm};

/// A way to multiply bytes; a value of it is the proof that this machine has it.
pub trait Dot: Copy + Send + Sync + 'static {
    /// As [`super::Simd::dot4`], four lanes.
    fn dot4(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t;
    /// As [`super::Simd::dot4_full`], four lanes.
    fn dot4_full(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t;
}

/// Products of 16 bits, added in pairs: what every machine has.
#[derive(Clone, Copy, Debug)]
pub struct Pairs;

impl Dot for Pairs {
    #[inline(always)]
    fn dot4(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: part of the architecture. Bytes up to 127 are signed ones too, and 2 · 127 · 128 fits 16 bits.
        unsafe {
            let (u, i) = (vreinterpretq_s8_s32(u), vreinterpretq_s8_s32(i));
            let low = vmull_s8(vget_low_s8(u), vget_low_s8(i));
            vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(u, i)))
        }
    }

    #[inline(always)]
    fn dot4_full(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: part of the architecture. 255 · 128 fits 16 bits.
        unsafe {
            let (u, i) = (vreinterpretq_u8_s32(u), vreinterpretq_s8_s32(i));
            let low_u = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u)));
            let high_u = vreinterpretq_s16_u16(vmovl_high_u8(u));
            let low = vpaddlq_s16(vmulq_s16(low_u, vmovl_s8(vget_low_s8(i))));
            let high = vpaddlq_s16(vmulq_s16(high_u, vmovl_high_s8(i)));
            vaddq_s32(acc, vpaddq_s32(low, high))
        }
    }
}

/// Proof of the feature dotprod: products of signed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Dotprod(());

impl Dotprod {
    /// # Safety
    /// The machine has dotprod.
    #[inline(always)]
    pub unsafe fn new() -> Dotprod {
        Dotprod(())
    }
}

impl Dot for Dotprod {
    #[inline(always)]
    fn dot4(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: a value of this type proves the feature. Bytes up to 127 are signed ones too.
        unsafe { sdot(acc, u, i) }
    }

    /// u·i = (u - 128)·i + 2 · 64·i.
    #[inline(always)]
    fn dot4_full(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: a value of this type proves the feature.
        unsafe {
            let (top, half) = (vdupq_n_u8(128), vreinterpretq_s32_u8(vdupq_n_u8(64)));
            let centred = vreinterpretq_s32_u8(veorq_u8(vreinterpretq_u8_s32(u), top));
            sdot(sdot(sdot(acc, centred, i), half, i), half, i)
        }
    }
}

/// Proof of the feature i8mm: products of unsigned with signed bytes.
#[derive(Clone, Copy, Debug)]
pub struct I8mm(());

impl I8mm {
    /// # Safety
    /// The machine has i8mm.
    #[inline(always)]
    pub unsafe fn new() -> I8mm {
        I8mm(())
    }
}

impl Dot for I8mm {
    #[inline(always)]
    fn dot4(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: a value of this type proves the feature.
        unsafe { usdot(acc, u, i) }
    }

    #[inline(always)]
    fn dot4_full(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        self.dot4(acc, u, i)
    }
}

/// acc + Σ a·b over the four bytes of each lane, all signed.
#[inline]
#[target_feature(enable = "dotprod")]
fn sdot(mut acc: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: the feature is this function's; registers alone are read and written, and they are named.
    unsafe {
        asm!("sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b", acc = inout(vreg) acc, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// acc + Σ u·i over the four bytes of each lane, u unsigned, i signed.
#[inline]
#[target_feature(enable = "i8mm")]
fn usdot(mut acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
    // SAFETY: the feature is this function's; registers alone are read and written, and they are named.
    unsafe {
        asm!("usdot {acc:v}.4s, {u:v}.16b, {i:v}.16b", acc = inout(vreg) acc, u = in(vreg) u, i = in(vreg) i,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}
