//! Several tokens pass over each row of a strip, whose elements stay in registers meanwhile.

use crate::ops::recurrence::rows::{STRIP, full, store, vector};
use crate::simd::{LANES, Simd, array, math};

/// Tokens that pass over a strip together: a row's elements stay in registers from the first to the last.
pub const TOKENS: usize = 8;

/// What a strip's rows take of a token.
#[derive(Clone, Copy, Default)]
pub struct Token<'a> {
    /// exp(Δ·a) of each row, or Δ where each element of a row has its own a.
    pub fades: [f32; STRIP],
    /// Δ·x of each row.
    pub x: [f32; STRIP],
    pub b: &'a [f32],
    pub c: &'a [f32],
    /// Δ of a head.
    pub delta: f32,
}

/// Tokens pass over the rows of a strip, of `width` elements: lanes of row r's sum at token t go to `sums[t][r]`.
#[inline(always)]
pub fn pass<S: Simd, const SHARED: bool>(
    s: S,
    a: &[&[f32]; STRIP],
    tokens: &[Token<'_>],
    width: usize,
    state: &mut [f32],
    sums: &mut [[S::F; STRIP]; TOKENS],
) {
    const WIDE: usize = 4;
    for (r, row) in state.chunks_exact_mut(width).enumerate() {
        let mut start = 0;
        while start + WIDE * LANES <= width {
            pass_part::<S, SHARED, WIDE, true>(s, a[r], tokens, [r, start], row, sums);
            start += WIDE * LANES;
        }
        while start < full(width) {
            pass_part::<S, SHARED, 1, true>(s, a[r], tokens, [r, start], row, sums);
            start += LANES;
        }
        if start < width {
            pass_part::<S, SHARED, 1, false>(s, a[r], tokens, [r, start], row, sums);
        }
    }
}

/// N vectors of row `r`, from element `start` on. The first of a row begin its sums.
#[inline(always)]
fn pass_part<S: Simd, const SHARED: bool, const N: usize, const FULL: bool>(
    s: S,
    a: &[f32],
    tokens: &[Token<'_>],
    [r, start]: [usize; 2],
    row: &mut [f32],
    sums: &mut [[S::F; STRIP]; TOKENS],
) {
    let at = |n: usize| start + n * LANES;
    let mut elements: [S::F; N] = array(|n| vector::<S, FULL>(s, row, at(n)));
    let a: [S::F; N] = array(|n| if SHARED { s.zero() } else { vector::<S, FULL>(s, a, at(n)) });
    for (token, sums) in tokens.iter().zip(sums) {
        let (x, fade) = (s.splat(token.x[r]), s.splat(token.fades[r]));
        let mut sum = if start == 0 { s.zero() } else { sums[r] };
        for n in 0..N {
            let fade = if SHARED { fade } else { math::exp(s, s.mul(fade, a[n])) };
            let added = s.mul(vector::<S, FULL>(s, token.b, at(n)), x);
            elements[n] = s.fma(elements[n], fade, added);
            sum = s.fma(elements[n], vector::<S, FULL>(s, token.c, at(n)), sum);
        }
        sums[r] = sum;
    }
    for n in 0..N {
        store::<S, FULL>(s, elements[n], row, at(n));
    }
}
