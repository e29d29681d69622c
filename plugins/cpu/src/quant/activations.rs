//! Activations quantised to 8 bits in groups of 32, for products with one format of weights.

use super::{Format, GROUP, Panel};
use crate::simd::{Simd, array, dispatch};
use bytemuck::{Pod, Zeroable};

/// 32 activations: q · d, q rounded to nearest.
#[derive(Clone, Copy, Default, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct XGroup {
    /// Signed bytes from -127 to 127, four by four.
    pub q: [[u8; 4]; 8],
    /// Largest magnitude / 127; NaN where one of the 32 is not finite.
    pub d: f32,
    /// Of the whole group (or each half, if the weights have two scales): [`Panel::START`] - OFFSET · Σ q, or the bits of
    /// d · Σ q where the weights have minima.
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
        quantise_group::<S, F>(s, x, out);
    }
}

/// |v|; infinity where v is not finite.
#[inline(always)]
fn magnitude<S: Simd>(s: S, v: S::F) -> S::F {
    let (size, infinity) = (s.from_bits(s.and(s.bits(v), s.splat_i(0x7fff_ffff))), s.splat(f32::INFINITY));
    s.above(infinity, size, size, infinity)
}

#[inline(always)]
fn quantise_group<S: Simd, F: Format>(s: S, x: &[f32; GROUP], out: &mut XGroup) {
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

    let q: [S::I; 2] = array(|h| s.round(s.mul(halves[h], inverse)));
    let (places, _) = out.q.as_flattened_mut().as_chunks_mut();
    for h in 0..2 {
        s.store_i8(q[h], &mut places[h]);
    }
    // Of floats, which are exact, since a sum of those has an instruction or two.
    let sums = match F::Group::HALVES {
        1 => [s.sum(s.float(s.add_i(q[0], q[1]))), 0.0],
        _ => [s.sum(s.float(q[0])), s.sum(s.float(q[1]))],
    };
    out.sums = match F::Group::MINIMA {
        true => sums.map(|sum| (d * sum).to_bits() as i32),
        false => sums.map(|sum| F::Group::START - F::OFFSET * sum as i32),
    };
    out.d = d;
}
