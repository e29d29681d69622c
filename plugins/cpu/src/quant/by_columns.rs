//! A block of all rows of a matrix by columns.

use super::{Format, Plane, ROWS, Rows, plane_of};
use crate::simd::{STRIP, Simd, array};
use std::ops::Range;

/// Panels of a strip.
pub const PANELS: usize = STRIP / ROWS;

/// Rows whose elements share bytes.
pub const fn turn<F: Format>() -> usize {
    STRIP * F::STRIPS
}

/// A block of all `m` rows of a matrix by columns, or some after it, too: what begins at byte `at` of a row's block begins at
/// byte m · `at`. Of bytes of elements, rows are in strips: see `sealed/columns.rs`.
#[derive(Clone, Copy)]
pub struct ByColumns<'a> {
    /// The block.
    pub block: &'a [u8],
    /// Rows of the matrix.
    pub m: usize,
}

impl<'a> ByColumns<'a> {
    /// Puts `rows` of a [`turn`], in this format, side by side: 16 in each panel of `out`, which has room for those of the whole
    /// turn, `stride` bytes apart. Others of their strips may be put there, too.
    #[inline(always)]
    pub fn side_by_side<S: Simd, F: Format>(self, s: S, rows: &Range<usize>, out: &mut [u8], stride: usize) {
        let first = rows.start / turn::<F>() * turn::<F>();
        let mut at = 0;
        for &(size, n) in F::UNITS {
            for _ in 0..n {
                match plane_of(F::PLANES, at) {
                    None => {
                        let of_turn = &self.block[at * self.m + first * size..][..turn::<F>() * size];
                        for (i, unit) in of_turn.chunks_exact(ROWS * size).enumerate() {
                            out[i * stride + ROWS * at..][..ROWS * size].copy_from_slice(unit);
                        }
                    }
                    Some(plane) => {
                        let places = [at, first, first + turn::<F>()];
                        match plane.in_byte() {
                            1 => self.elements::<S, 1>(s, plane, places, rows, out, stride),
                            2 => self.elements::<S, 2>(s, plane, places, rows, out, stride),
                            4 => self.elements::<S, 4>(s, plane, places, rows, out, stride),
                            _ => self.elements::<S, 8>(s, plane, places, rows, out, stride),
                        }
                    }
                }
                at += size;
            }
        }
    }

    /// The same of four bytes of elements from byte `at` on, each of `N` elements, of a turn.
    #[inline(always)]
    fn elements<S: Simd, const N: usize>(
        &self,
        s: S,
        plane: Plane,
        [at, start, end]: [usize; 3],
        rows: &Range<usize>,
        out: &mut [u8],
        stride: usize,
    ) {
        let mask = s.splat_i(plane.mask());
        let is_needed = |first: usize, n: usize| first < rows.end && rows.start < first + n;
        for (i, first) in (start..end).step_by(N * STRIP).enumerate() {
            if !is_needed(first, N * STRIP) {
                continue;
            }
            let mut places = [[s.splat_i(0); PANELS]; N];
            for (place, panels) in places.iter_mut().enumerate() {
                let offset = first / N / STRIP + place * (self.m / N / STRIP);
                let strips = array(|i| self.strip((at + i) * (self.m / STRIP) + offset));
                let [a, b, c, d] = panels;
                (*a, *b) = (s.zip_strip(strips, 0), s.zip_strip(strips, 1));
                (*c, *d) = (s.zip_strip(strips, 2), s.zip_strip(strips, 3));
            }
            for strip in 0..N {
                if !is_needed(first + strip * STRIP, STRIP) {
                    continue;
                }
                for panel in 0..PANELS {
                    let mut all = s.splat_i(0);
                    for (place, panels) in places.iter().enumerate() {
                        let bits = s.and(s.shr(panels[panel], strip as u32 * plane.bits), mask);
                        all = s.or(all, s.shl(bits, place as u32 * plane.bits));
                    }
                    let to = out[((i * N + strip) * PANELS + panel) * stride + ROWS * at..].first_chunk_mut();
                    to.into_iter().for_each(|to| s.store_b(all, to));
                }
            }
        }
    }

    /// Strip `i` of all bytes of the block, in order.
    #[inline(always)]
    pub fn strip(&self, i: usize) -> &'a [u8; STRIP] {
        &self.block.as_chunks().0[i]
    }

    /// A unit of `size` bytes of each of 16 rows.
    #[inline(always)]
    fn unit<const N: usize>(&self, at: usize, size: usize, first: usize) -> &[u8; N] {
        let found = self.block[at * self.m + size * first..].first_chunk();
        found.unwrap_or(&[0; N]) // the matrix has 16 rows from `first` on
    }
}

/// The 16 rows from `first` on of a block by columns, of which no byte of elements is read.
#[derive(Clone, Copy)]
pub struct RowsOf<'a> {
    /// The block.
    pub columns: ByColumns<'a>,
    /// The first row.
    pub first: usize,
}

impl RowsOf<'_> {
    /// A unit of four bytes of each row.
    #[inline(always)]
    fn four<S: Simd>(self, s: S, at: usize) -> S::I {
        s.load_b(self.columns.unit(at, 4, self.first))
    }
}

impl Rows for RowsOf<'_> {
    #[inline(always)]
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4] {
        // Without closures: one that is not inlined would lack the instruction set.
        [self.four(s, at), self.four(s, at + 4), self.four(s, at + 8), self.four(s, at + 12)]
    }

    #[inline(always)]
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F {
        s.load_f16(self.columns.unit(at, 2, self.first))
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        s.and(s.load_i8(self.columns.unit(at, 1, self.first)), s.splat_i(0xff))
    }
}
