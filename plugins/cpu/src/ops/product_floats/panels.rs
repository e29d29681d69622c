//! Panels of float weights: 16 rows side by side, sealed or made f32.

use super::Sixteen;
use super::weights::Weights;
use crate::ops::float::Float;
use crate::ops::product::{AHEAD, Product};
use crate::ops::rows;
use crate::quant::ROWS;
use crate::scratch::Arena;
use crate::simd::{Isa, Simd};
use std::ops::Range;
use std::ptr::from_ref;

/// The sealed panel that begins with a row, if all of it is wanted.
#[inline(always)]
pub fn sealed<'a>(p: &Product<'a>, first: usize, rows: &Range<usize>) -> Option<&'a [u8]> {
    (first + ROWS <= rows.end).then(|| p.w.panel([first, p.at[0], p.at[1]])).flatten()
}

/// 16 rows side by side.
pub trait Panel: Copy {
    /// Word k of each row.
    fn load<S: Simd>(self, s: S, k: usize) -> S::F;
}

/// A panel as `seal` left it. What lies behind is asked for.
#[derive(Clone, Copy)]
pub struct Sealed<'a, F: Float>(&'a [F::Sixteen]);

impl<'a, F: Float> Sealed<'a, F> {
    /// That of these bytes.
    #[inline(always)]
    pub fn of(bytes: &'a [u8]) -> Self {
        Sealed(F::sixteens(bytes))
    }
}

impl<F: Float> Panel for Sealed<'_, F> {
    #[inline(always)]
    fn load<S: Simd>(self, s: S, k: usize) -> S::F {
        let w = &self.0[k];
        s.prefetch(from_ref(w).cast::<u8>().wrapping_add(AHEAD));
        F::load(s, w)
    }
}

impl Panel for &[Sixteen] {
    #[inline(always)]
    fn load<S: Simd>(self, s: S, k: usize) -> S::F {
        s.load(&self[k])
    }
}

/// A stretch of 16 rows (of `n_rows`, the others being anything) as f32, side by side; that of the panel `P` further on is
/// asked for.
#[inline(always)]
pub fn unpack<S: Simd, F: Weights, const P: usize>(
    s: S,
    p: &Product<'_>,
    first: usize,
    n_rows: usize,
    part: &Range<usize>,
    room: &mut Arena,
    out: &mut [Sixteen],
) {
    let at = [first, p.at[0], p.at[1]];
    if n_rows == ROWS
        && let Some(panel) = p.w.panel(at)
    {
        let ahead = P * panel.len();
        for (out, w) in out.iter_mut().zip(&F::Word::sixteens(panel)[part.clone()]) {
            s.prefetch(from_ref(w).cast::<u8>().wrapping_add(ahead));
            s.store(F::Word::load(s, w), out);
        }
        return;
    }
    let mut done = 0;
    if n_rows == ROWS && p.w.dtype == F::DTYPE && p.w.has_dense_rows() {
        let n = 16 / F::BYTES;
        done = (part.end * F::NUMBERS).min(p.w.ne[0]).saturating_sub(part.start * F::NUMBERS)
            / (n * F::NUMBERS)
            * n;
        let bytes = &p.w.bytes()[p.w.offset_of(at) + part.start * F::BYTES..];
        for (i, out) in out[..done].chunks_exact_mut(n).enumerate() {
            F::split(s, s.transpose(&bytes[16 * i..], p.w.nb[1]), out);
        }
    }
    if done < part.len() {
        let rest = (part.start + done) * F::NUMBERS..(part.end * F::NUMBERS).min(p.w.ne[0]);
        let room = room.take::<f32>(rest.len());
        for r in 0..n_rows {
            let row = rows::read(Isa::SCALAR, p.w, [first + r, p.at[0], p.at[1]], rest.clone(), room);
            out[done..].iter_mut().zip(row.chunks(F::NUMBERS)).for_each(|(out, v)| out[r] = F::word(v));
        }
    }
}
