//! Dot products of bytes on 64-bit ARM, by what the machine has for them.
//!
//! The instructions stand in assembly: the standard library's functions for them are not stable yet.

use std::arch::{aarch64::*, asm};

/// A way to multiply bytes; a value of it is the proof that this machine has it.
pub trait Dot: Copy + Send + Sync + 'static {
    /// As [`super::Simd::CENTRE`]: signed bytes, unless the constant differs.
    const CENTRE: i32 = 128;

    /// As [`super::Simd::dot4`], four lanes; u may be signed bytes too.
    fn dot4(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t;

    /// As [`super::Simd::dot4_full`], four lanes.
    #[inline(always)]
    fn dot4_full(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: part of the architecture. Turning the top bit over takes 128 off.
        let centred = unsafe { veorq_s32(u, vreinterpretq_s32_u8(vdupq_n_u8(128))) };
        self.dot4(acc, centred, i)
    }
}

/// Products of 16 bits, added in pairs: what every machine has.
#[derive(Clone, Copy, Debug)]
pub struct Pairs;

impl Dot for Pairs {
    #[inline(always)]
    fn dot4(self, acc: int32x4_t, u: int32x4_t, i: int32x4_t) -> int32x4_t {
        // SAFETY: part of the architecture. Bytes up to 127 are signed ones too, and 2 · 128 · 127 fits 16 bits.
        unsafe {
            let (u, i) = (vreinterpretq_s8_s32(u), vreinterpretq_s8_s32(i));
            let low = vmull_s8(vget_low_s8(u), vget_low_s8(i));
            vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(u, i)))
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
    const CENTRE: i32 = 0;

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
