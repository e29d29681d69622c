//! Dtypes of floats as words: what a vector has of 16 rows at a time. A word is a number, or a pair of bfloat16 numbers.

use crate::simd::{LANES, Simd, f32_to_bf16};
use llmrt_plugin::DType;

/// A dtype of floats.
pub trait Element {
    /// It.
    const DTYPE: DType;
    /// Bytes of a word.
    const BYTES: usize;
    /// Bytes of 16 words.
    const SIXTEEN: usize = 16 * Self::BYTES;
    /// Words of k whose panels and columns stay in the first cache; whole blocks.
    const STRETCH: usize = 128;
    /// Numbers in a word.
    const NUMBERS: usize = 1;

    /// 16 words that lie side by side, in 32 bits each.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F;
    /// The words in 16 bytes of each row.
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]);
    /// The word of at most [`Element::NUMBERS`] numbers, which have this dtype's precision.
    fn word(numbers: &[f32]) -> f32 {
        numbers[0]
    }
    /// Words of weights times words of activations, added to `sum`.
    #[inline(always)]
    fn add_products<S: Simd>(s: S, w: S::F, x: S::F, sum: S::F) -> S::F {
        s.fma(w, x, sum)
    }
}

/// Four bytes.
pub enum F32 {}
/// Blocks of any dtype, which are decoded.
pub enum Decoded {}
/// IEEE half precision.
pub enum F16 {}
/// The upper half of an F32; in pairs, which meet activations rounded to the same.
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
    const BYTES: usize = 4;
    const NUMBERS: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        F32::load(s, bytes)
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [[f32; LANES]]) {
        F32::split(s, words, out);
    }

    fn word(numbers: &[f32]) -> f32 {
        let high = numbers.get(1).map_or(0, |v| v.to_bits());
        f32::from_bits(numbers[0].to_bits() >> 16 | high)
    }

    #[inline(always)]
    fn add_products<S: Simd>(s: S, w: S::F, x: S::F, sum: S::F) -> S::F {
        s.dot2_bf16(s.bits(w), s.bits(x), sum)
    }
}

/// Two numbers rounded to bfloat16 in the bits of one; those below 2⁻¹²⁶ become zero, as [`Simd::dot2_bf16`] may take them.
#[inline(always)]
pub fn bf16_pair(low: f32, high: f32) -> f32 {
    f32::from_bits(flushed(f32_to_bf16(high)) << 16 | flushed(f32_to_bf16(low)))
}

/// A bfloat16, or zero instead of one below 2⁻¹²⁶, whose exponent is 0.
#[inline(always)]
fn flushed(bf16: u16) -> u32 {
    if bf16 & 0x7f80 == 0 { 0 } else { bf16 as u32 }
}
