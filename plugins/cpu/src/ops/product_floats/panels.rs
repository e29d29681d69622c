//! Panels of float weights: 16 rows side by side, sealed or made f32.

use super::Sixteen;
use super::element::Element;
use crate::ops::product::{AHEAD, Product};
use crate::ops::rows;
use crate::quant::ROWS;
use crate::scratch::Arena;
use crate::simd::{Isa, Simd};
use std::marker::PhantomData;
use std::ops::Range;

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
pub struct Sealed<'a, E>(&'a [u8], PhantomData<E>);

impl<'a, E> Sealed<'a, E> {
    /// Its bytes.
    #[inline(always)]
    pub fn of(bytes: &'a [u8]) -> Self {
        Sealed(bytes, PhantomData)
    }
}

impl<E> Clone for Sealed<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Sealed<'_, E> {}

impl<E: Element> Panel for Sealed<'_, E> {
    #[inline(always)]
    fn load<S: Simd>(self, s: S, k: usize) -> S::F {
        let w = &self.0[k * E::SIXTEEN..][..E::SIXTEEN];
        s.prefetch(w.as_ptr().wrapping_add(AHEAD));
        E::load(s, w)
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
pub fn unpack<S: Simd, E: Element, const P: usize>(
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
        let sixteens = panel[part.start * E::SIXTEEN..].chunks_exact(E::SIXTEEN);
        let ahead = P * panel.len();
        for (out, w) in out[..part.len()].iter_mut().zip(sixteens) {
            s.prefetch(w.as_ptr().wrapping_add(ahead));
            s.store(E::load(s, w), out);
        }
        return;
    }
    let mut done = 0;
    if n_rows == ROWS && p.w.dtype == E::DTYPE && p.w.has_dense_rows() {
        let n = 16 / E::BYTES;
        done = (part.end * E::NUMBERS).min(p.w.ne[0]).saturating_sub(part.start * E::NUMBERS)
            / (n * E::NUMBERS)
            * n;
        let bytes = &p.w.bytes()[p.w.offset_of(at) + part.start * E::BYTES..];
        for (i, out) in out[..done].chunks_exact_mut(n).enumerate() {
            E::split(s, s.transpose(&bytes[16 * i..], p.w.nb[1]), out);
        }
    }
    if done < part.len() {
        let rest = (part.start + done) * E::NUMBERS..(part.end * E::NUMBERS).min(p.w.ne[0]);
        let room = room.take::<f32>(rest.len());
        for r in 0..n_rows {
            let row = rows::read(Isa::SCALAR, p.w, [first + r, p.at[0], p.at[1]], rest.clone(), room);
            out[done..].iter_mut().zip(row.chunks(E::NUMBERS)).for_each(|(out, v)| out[r] = E::word(v));
        }
    }
}
