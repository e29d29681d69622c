//! Products of matrices by columns with one column of activations that are mostly zeros: numbers for zeros alone are not
//! read. Sums are in the order of all other products, so bits are the same.

use super::weights::Weights;
use super::{LANES, Sums};
use crate::ops::float::Float;
use crate::ops::output::Tile;
use crate::ops::product::Product;
use crate::quant::ROWS;
use crate::scratch::Scratch;
use crate::simd::{Simd, prefetch};
use std::ops::Range;

/// Rows of a matrix by columns times one column.
#[inline(always)]
pub fn one_column<S: Simd, F: Weights>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    let (m, k, n) = (p.w.ne[1], p.w.ne[0].div_ceil(F::NUMBERS), rows.len() / ROWS);
    let numbers = F::Word::chunks16(p.w.bytes());
    let row = |i: usize| &numbers[(i * m + rows.start) / ROWS..][..n];
    let (sums, stretch) = scratch.sums.take::<Sums>(2 * n).split_at_mut(n);
    sums.fill([0.0; LANES]);
    for start in (0..k).step_by(F::STRETCH) {
        stretch.fill([0.0; LANES]);
        let is_read = |i: &usize| !is_zero::<F>(p.packed[*i]);
        let mut all = (start..(start + F::STRETCH).min(k)).filter(is_read).peekable();
        while let Some(i) = all.next() {
            let x = s.splat(p.packed[i]);
            let next = all.peek().map_or(row(i), |next| row(*next));
            for ((w, next), sum) in row(i).iter().zip(next).zip(&mut *stretch) {
                prefetch(std::ptr::from_ref(next).cast());
                s.store(F::add_products(s, F::Word::load(s, w), x, s.load(sum)), sum);
            }
        }
        for (sum, stretch) in sums.iter_mut().zip(&*stretch) {
            s.store(s.add(s.load(sum), s.load(stretch)), sum);
        }
    }
    let y = y.part(y.unravel(p.columns[0].y), rows.clone());
    y.as_chunks_mut::<LANES>().0.copy_from_slice(sums);
}

/// Whether a word is a zero, or a pair of them.
#[inline(always)]
fn is_zero<F: Weights>(word: f32) -> bool {
    match F::NUMBERS {
        1 => word == 0.0,
        _ => word.to_bits() & 0x7fff_7fff == 0,
    }
}
