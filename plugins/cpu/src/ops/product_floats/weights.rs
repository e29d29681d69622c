//! Float weights as words: what a vector has of 16 rows at a time. A word is a number, or a pair of bfloat16 numbers.

use super::panels::{Sealed, Unpacked};
use crate::ops::float::{F16, F32, Float};
use crate::simd::{LANES, Simd, f32_to_bf16};
use llmrt_plugin::DType;

/// How weights of a dtype are read and multiplied.
pub trait Weights {
    /// Whose vectors hold 16 words.
    type Word: Float;
    /// The dtype whose rows have words of this layout.
    const DTYPE: DType;
    /// Bytes of a word.
    const BYTES: usize = size_of::<<Self::Word as Float>::Chunk16>() / LANES;
    /// Words of k whose panels and columns stay in the first cache; whole blocks.
    const STRETCH: usize = 128;
    /// Numbers in a word.
    const NUMBERS: usize = 1;

    /// A sealed panel as an unpacked one, where both have one layout.
    fn unpacked(_panel: &[Sealed<Self>]) -> Option<&[Unpacked]>
    where
        Self: Sized,
    {
        None
    }
    /// The words in 16 bytes of each row.
    #[inline(always)]
    fn split<S: Simd>(s: S, bytes: [S::I; 4], out: &mut [Unpacked]) {
        for (out, v) in out.iter_mut().zip(bytes) {
            s.store_b(v, out);
        }
    }
    /// The word of at most [`Weights::NUMBERS`] numbers, which have this dtype's precision.
    fn word(numbers: &[f32]) -> f32 {
        numbers[0]
    }
    /// Words of weights times words of activations, added to `sum`.
    #[inline(always)]
    fn add_products<S: Simd>(s: S, w: S::F, x: S::F, sum: S::F) -> S::F {
        s.fma(w, x, sum)
    }
}

/// Blocks of any dtype, which are decoded.
pub enum Decoded {}
/// Bfloat16 numbers in pairs, multiplied with activations rounded to bfloat16.
pub enum Bf16Pairs {}

impl Weights for F32 {
    type Word = F32;
    const DTYPE: DType = DType::F32;

    fn unpacked(panel: &[Unpacked]) -> Option<&[Unpacked]> {
        Some(panel)
    }
}

impl Weights for Decoded {
    type Word = F32;
    const DTYPE: DType = DType::F32;
    const STRETCH: usize = 256;
}

impl Weights for F16 {
    type Word = F16;
    const DTYPE: DType = DType::F16;

    #[inline(always)]
    fn split<S: Simd>(s: S, bytes: [S::I; 4], out: &mut [Unpacked]) {
        for (out, v) in out.chunks_exact_mut(2).zip(bytes) {
            s.store_b(s.bits(s.halves(v)), &mut out[0]);
            s.store_b(s.bits(s.halves(s.shr(v, 16))), &mut out[1]);
        }
    }
}

impl Weights for Bf16Pairs {
    type Word = F32;
    const DTYPE: DType = DType::BF16;
    const NUMBERS: usize = 2;

    fn unpacked(panel: &[Unpacked]) -> Option<&[Unpacked]> {
        Some(panel)
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
