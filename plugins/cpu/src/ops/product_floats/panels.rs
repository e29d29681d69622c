//! Panels of float weights: 16 rows side by side, sealed or made f32.

use super::weights::Weights;
use crate::ops::float::{F32, Float};
use crate::ops::product::Product;
use crate::ops::rows;
use crate::quant::ROWS;
use crate::scratch::Arena;
use crate::simd::{Isa, Simd, prefetch};
use std::ops::Range;
use std::ptr::from_ref;

/// Word k of each of 16 rows, as sealed panels have it.
pub type Sealed<F> = <<F as Weights>::Word as Float>::Chunk16;
/// The same in 32 bits each, as unpacked panels have it.
pub type Unpacked = <F32 as Float>::Chunk16;

/// The sealed panel that begins with a row, if all of it is used.
#[inline(always)]
pub fn sealed<'a, F: Weights>(p: &Product<'a>, first: usize, rows: &Range<usize>) -> Option<&'a [Sealed<F>]> {
    let panel = (first + ROWS <= rows.end).then(|| p.w.panel([first, p.at[0], p.at[1]])).flatten()?;
    Some(F::Word::chunks16(panel))
}

/// A stretch of 16 rows (of `n_rows`, the others being anything) as words of 32 bits, side by side; with few registers that of
/// the panel `P` further on is prefetched.
#[inline(always)]
pub fn unpack<S: Simd, F: Weights, const P: usize>(
    s: S,
    p: &Product<'_>,
    first: usize,
    n_rows: usize,
    part: &Range<usize>,
    room: &mut Arena,
    out: &mut [Unpacked],
) {
    let at = [first, p.at[0], p.at[1]];
    if n_rows == ROWS
        && let Some(panel) = p.w.panel(at)
    {
        let ahead = P * panel.len();
        for (out, w) in out.iter_mut().zip(&F::Word::chunks16(panel)[part.clone()]) {
            if !S::WIDE {
                prefetch(from_ref(w).cast::<u8>().wrapping_add(ahead));
            }
            s.store_b(s.bits(F::Word::load(s, w)), out);
        }
        return;
    }
    if p.w.columns.is_some() {
        let numbers = F::Word::chunks16(p.w.bytes());
        for (out, i) in out.iter_mut().zip(part.clone()) {
            s.store_b(s.bits(F::Word::load(s, &numbers[(i * p.w.ne[1] + first) / ROWS])), out);
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
            for (out, numbers) in out[done..].iter_mut().zip(row.chunks(F::NUMBERS)) {
                out.as_chunks_mut().0[r] = F::word(numbers).to_le_bytes();
            }
        }
    }
}
