//! Nibbles that choose from 16 levels: IQ4_NL, IQ4_XS, MXFP4.

use super::k::signed_integers;
use super::scale_search::best_scale;
use super::{inverse_of, put_half};
use crate::simd::{Simd, dispatch};

/// The levels of IQ4.
const LEVELS: [f32; 16] =
    [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];

/// Twice the magnitudes of E2M1.
const DOUBLED: [f32; 8] = [0., 1., 2., 3., 4., 6., 8., 12.];

dispatch! {
    pub fn iq4_nl(x: &[f32], out: &mut [u8]) = iq4_nl_with;
    pub fn iq4_xs(x: &[f32], out: &mut [u8]) = iq4_xs_with;
    pub fn mxfp4(x: &[f32], out: &mut [u8]) = mxfp4_with;
}

#[inline(always)]
fn iq4_nl_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<18>().0) {
        let d = put_half(out, 0, level_scale(x));
        let inverse = inverse_of(d);
        put_nibbles(&mut out[2..], |i| nearest_level(x[i] * inverse));
    }
}

#[inline(always)]
fn iq4_xs_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<256>().0.iter().zip(out.as_chunks_mut::<136>().0) {
        let parts = x.as_chunks::<32>().0;
        let mut scales = [0.0; 8];
        scales.iter_mut().zip(parts).for_each(|(scale, x)| *scale = level_scale(x));
        let (d, scales) = signed_integers(&scales, 32.0, out);
        out[2..8].fill(0);
        for (j, (&scale, x)) in scales.iter().zip(parts).enumerate() {
            let stored = (scale + 32) as u8;
            out[4 + j / 2] |= (stored & 15) << (j % 2 * 4);
            out[2 + j / 4] |= (stored >> 4) << (j % 4 * 2);
            let inverse = inverse_of(d * scale as f32);
            put_nibbles(&mut out[8 + 16 * j..][..16], |i| nearest_level(x[i] * inverse));
        }
    }
}

/// The scale with which level · scale comes nearest to x.
#[inline(always)]
fn level_scale(x: &[f32; 32]) -> f32 {
    let rounded = |v: f32| {
        (0..15).fold(LEVELS[0], |q, i| if v > middle(i) { q + (LEVELS[i + 1] - LEVELS[i]) } else { q })
    };
    best_scale(x, |peak, step| (127.0 + 2.0 * step) / -peak, rounded)
}

/// How many middles between levels are below.
#[inline(always)]
fn nearest_level(v: f32) -> u8 {
    (0..15).map(|i| (v > middle(i)) as u8).sum()
}

#[inline(always)]
fn middle(i: usize) -> f32 {
    (LEVELS[i] + LEVELS[i + 1]) / 2.0
}

/// The largest element becomes 4 to 8 of the unit, saturating at 6.
#[inline(always)]
fn mxfp4_with<S: Simd>(_: S, x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<17>().0) {
        let max = x.iter().fold(0f32, |max, v| max.max(v.abs()));
        out[0] = if max > 0.0 { (max.log2().floor() + 125.0).clamp(0.0, 254.0) as u8 } else { 0 };
        let d = f32::from_bits(if out[0] < 2 { 0x0020_0000 << out[0] } else { (out[0] as u32 - 1) << 23 });
        let inverse = inverse_of(d);
        put_nibbles(&mut out[1..], |i| nearest_e2m1(x[i] * inverse));
    }
}

/// Magnitudes are taken up past the middle, as the lower number wins ties; the sign stands above them, for zeros not.
#[inline(always)]
fn nearest_e2m1(v: f32) -> u8 {
    let q: u8 = (0..7).map(|i| (v.abs() > (DOUBLED[i] + DOUBLED[i + 1]) / 2.0) as u8).sum();
    if v < 0.0 && q > 0 { q | 8 } else { q }
}

/// 16 bytes: element j in the low, element j + 16 in the high four bits of byte j.
#[inline(always)]
fn put_nibbles(out: &mut [u8], q: impl Fn(usize) -> u8) {
    out.iter_mut().enumerate().for_each(|(j, out)| *out = q(j) | q(j + 16) << 4);
}
