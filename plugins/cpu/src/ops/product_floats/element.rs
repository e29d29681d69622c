//! Dtypes of floats: 16 numbers as a vector, wherever they lie.

use crate::simd::{LANES, Simd};
use llmrt_plugin::DType;

/// A dtype of floats.
pub trait Element {
    /// It.
    const DTYPE: DType;
    /// Elements of k whose panels and columns stay in the first cache; whole blocks.
    const STRETCH: usize = 128;
    /// Bytes of a number.
    const BYTES: usize;
    /// Bytes of 16 numbers.
    const SIXTEEN: usize = 16 * Self::BYTES;
    /// 16 numbers that lie side by side.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F;
    /// The numbers in 16 bytes of each row.
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]);
}

/// Four bytes.
pub enum F32 {}
/// Blocks of any dtype, which are decoded.
pub enum Decoded {}
/// IEEE half precision.
pub enum F16 {}
/// The upper half of an F32.
pub enum Bf16 {}

impl Element for F32 {
    const DTYPE: DType = DType::F32;
    const BYTES: usize = 4;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.from_bits(s.load_b(bytes.first_chunk().unwrap_or(&[0; 64])))
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]) {
        for (out, v) in out.iter_mut().zip(words) {
            s.store(s.from_bits(v), out);
        }
    }
}

impl Element for Decoded {
    const DTYPE: DType = DType::F32;
    const STRETCH: usize = 256;
    const BYTES: usize = F32::BYTES;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        F32::load(s, bytes)
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]) {
        F32::split(s, words, out);
    }
}

impl Element for F16 {
    const DTYPE: DType = DType::F16;
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_f16(bytes.first_chunk().unwrap_or(&[0; 32]))
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]) {
        for (out, v) in out.chunks_exact_mut(2).zip(words) {
            s.store(s.halves(v), &mut out[0]);
            s.store(s.halves(s.shr(v, 16)), &mut out[1]);
        }
    }
}

impl Element for Bf16 {
    const DTYPE: DType = DType::BF16;
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_bf16(bytes.first_chunk().unwrap_or(&[0; 32]))
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]) {
        for (out, v) in out.chunks_exact_mut(2).zip(words) {
            s.store(s.from_bits(s.shl(v, 16)), &mut out[0]);
            s.store(s.from_bits(s.and(v, s.splat_i(0xffff_0000_u32 as i32))), &mut out[1]);
        }
    }
}
