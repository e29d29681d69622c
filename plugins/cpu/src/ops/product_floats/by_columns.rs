//! Products of matrices by columns with few columns of activations that are mostly zeros: numbers that meet zeros alone are
//! not read. Sums are in the order of all other products, so bits are the same.

use super::weights::Weights;
use super::{LANES, Sums};
use crate::ops::float::Float;
use crate::ops::output::Tile;
use crate::ops::product::Product;
use crate::quant::ROWS;
use crate::scratch::Scratch;
use crate::simd::{Simd, array, prefetch};
use std::ops::Range;

/// Rows of a matrix by columns times at most `C` columns, which are packed `W` side by side.
#[inline(always)]
pub fn few_columns<S: Simd, F: Weights, const C: usize, const W: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    let (m, k) = (p.w.ne[1], p.w.ne[0].div_ceil(F::NUMBERS));
    let numbers = F::Word::chunks16(p.w.bytes());
    let row = |i: usize| &numbers[(i * m + rows.start) / ROWS..][..rows.len() / ROWS];
    let x = |i: usize| -> [f32; C] { array(|c| p.packed[i * W + c]) };
    let is_read = |i: &usize| x(*i).iter().any(|x| !is_zero::<F>(*x));
    let n = rows.len() / ROWS;
    let (sums, stretch) = scratch.sums.take::<Sums>(2 * n * C).split_at_mut(n * C);
    sums.fill([0.0; LANES]);
    for start in (0..k).step_by(F::STRETCH) {
        stretch.fill([0.0; LANES]);
        let mut all = (start..(start + F::STRETCH).min(k)).filter(is_read).peekable();
        while let Some(i) = all.next() {
            let x: [S::F; C] = array(|c| s.splat(x(i)[c]));
            let next = all.peek().map_or(row(i), |next| row(*next));
            for ((w, next), sums) in row(i).iter().zip(next).zip(stretch.chunks_exact_mut(C)) {
                prefetch(std::ptr::from_ref(next).cast());
                let w = F::Word::load(s, w);
                for c in 0..C {
                    s.store(F::add_products(s, w, x[c], s.load(&sums[c])), &mut sums[c]);
                }
            }
        }
        for (sums, stretch) in sums.iter_mut().zip(stretch.iter()) {
            s.store(s.add(s.load(sums), s.load(stretch)), sums);
        }
    }
    for (c, column) in p.columns.iter().enumerate() {
        let y = y.part(y.unravel(column.y), rows.clone());
        y.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.chunks_exact(C)).for_each(|(y, sums)| *y = sums[c]);
    }
}

/// Whether a word is a zero, or a pair of them.
#[inline(always)]
fn is_zero<F: Weights>(word: f32) -> bool {
    match F::NUMBERS {
        1 => word == 0.0,
        _ => word.to_bits() & 0x7fff_7fff == 0,
    }
}
