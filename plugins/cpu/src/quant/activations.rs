//! Activations quantised to 8 bits in groups of 32, ready to meet one format of weights.

use super::{Format, GROUP, Panel};
use crate::simd::{Simd, dispatch};

/// 32 activations: q · d, q rounded to nearest.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
#[repr(C, align(16))]
pub struct XGroup {
    /// Four signed bytes each, from -127 to 127.
    pub q: [i32; 8],
    /// Largest magnitude / 127; NaN where one of the 32 is not finite.
    pub d: f32,
    /// Of the whole group (or each half, if the weights have two scales): -OFFSET · Σ q, or the bits of d · Σ q where
    /// the weights have minima.
    pub sums: [i32; 2],
    _padding: u32,
}

dispatch! {
    /// Quantises a row of floats, `x.len()` = 32 · `out.len()`, for weights of format `F`.
    pub fn quantise<F: Format>(x: &[f32], out: &mut [XGroup]) = quantise_with;
}

#[inline(always)]
fn quantise_with<S: Simd, F: Format>(s: S, x: &[f32], out: &mut [XGroup]) {
    let (groups, _) = x.as_chunks::<GROUP>();
    for (x, out) in groups.iter().zip(out) {
        *out = quantise_group::<S, F>(s, x);
    }
}

/// |v|; infinity where v is not finite.
#[inline(always)]
fn magnitude<S: Simd>(s: S, v: S::F) -> S::F {
    let (size, infinity) = (s.from_bits(s.and(s.bits(v), s.splat_i(0x7fff_ffff))), s.splat(f32::INFINITY));
    s.above(infinity, size, size, infinity)
}

#[inline(always)]
fn quantise_group<S: Simd, F: Format>(s: S, x: &[f32; GROUP]) -> XGroup {
    let (halves, _) = x.as_chunks::<16>();
    let halves = [s.load(&halves[0]), s.load(&halves[1])];
    let largest = s.peak(s.max(magnitude(s, halves[0]), magnitude(s, halves[1])));
    // Infinity and NaN come out as NaN, and so does all that is added to them.
    let d = if largest < f32::INFINITY { largest / 127.0 } else { f32::NAN };
    // Of 0 and of numbers so small that the inverse is no number, all q are 0.
    let inverse = 127.0 / largest;
    let inverse = s.splat(if inverse < f32::INFINITY { inverse } else { 0.0 });
    // Infinity times 0 is no integer.
    let halves = if d.is_nan() { [s.zero(); 2] } else { halves };

    let mut bytes = [[0u8; 16]; 2];
    for (half, bytes) in halves.into_iter().zip(&mut bytes) {
        s.store_i8(s.round(s.mul(half, inverse)), bytes);
    }
    let sum = |bytes: &[u8; 16]| bytes.iter().map(|&b| b as i8 as i32).sum::<i32>();
    let mut sums = [sum(&bytes[0]), sum(&bytes[1])];
    if F::Group::HALVES == 1 {
        sums = [sums[0] + sums[1], 0];
    }
    let sums = match F::Group::MINIMA {
        true => sums.map(|sum| (d * sum as f32).to_bits() as i32),
        false => sums.map(|sum| -F::OFFSET * sum),
    };
    let (quads, _) = bytes.as_flattened().as_chunks::<4>();
    XGroup { q: crate::simd::array(|j| i32::from_le_bytes(quads[j])), d, sums, _padding: 0 }
}
