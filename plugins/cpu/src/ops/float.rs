//! Dtypes of floats: 16 numbers of memory as a vector.

use crate::simd::Simd;

/// A dtype of floats.
pub trait Float: Copy {
    /// 16 numbers as stored in memory.
    type Chunk16: Copy;

    /// Numbers by 16; what is left over is not among them.
    fn chunks16(bytes: &[u8]) -> &[Self::Chunk16];
    /// The vector of 16 numbers.
    fn load<S: Simd>(s: S, numbers: &Self::Chunk16) -> S::F;
}

/// Four bytes.
#[derive(Clone, Copy)]
pub enum F32 {}
/// IEEE half precision.
#[derive(Clone, Copy)]
pub enum F16 {}
/// The upper half of an F32.
#[derive(Clone, Copy)]
pub enum Bf16 {}

impl Float for F32 {
    type Chunk16 = [u8; 64];

    #[inline(always)]
    fn chunks16(bytes: &[u8]) -> &[[u8; 64]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, numbers: &[u8; 64]) -> S::F {
        s.from_bits(s.load_b(numbers))
    }
}

impl Float for F16 {
    type Chunk16 = [u8; 32];

    #[inline(always)]
    fn chunks16(bytes: &[u8]) -> &[[u8; 32]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, numbers: &[u8; 32]) -> S::F {
        s.load_f16(numbers)
    }
}

impl Float for Bf16 {
    type Chunk16 = [u8; 32];

    #[inline(always)]
    fn chunks16(bytes: &[u8]) -> &[[u8; 32]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, numbers: &[u8; 32]) -> S::F {
        s.load_bf16(numbers)
    }
}
