//! A block of each of 16 rows in any layout: rows as in the file, next to each other or anywhere, side by side as `seal` leaves
//! panels, or by columns.

use super::{Format, Plane, ROWS, plane_of};
use crate::simd::{RowSet, STRIP, Simd, array};

/// What formats read of a block of each of 16 rows. `at` is a byte of the block where a unit begins.
pub trait Rows: Copy {
    /// 16 bytes of each row: lane r of vector j has bytes 4j.. of row r.
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4];
    /// An F16 number of each row.
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F;
    /// A byte of each row as a number from 0 to 255.
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I;
}

/// Blocks `stride` bytes apart.
#[derive(Clone, Copy)]
pub struct RowByRow<'a> {
    /// From the first byte of the first row on.
    pub bytes: &'a [u8],
    /// Bytes between rows.
    pub stride: usize,
}

impl Rows for RowByRow<'_> {
    #[inline(always)]
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4] {
        s.transpose(&self.bytes[at..], self.stride)
    }

    #[inline(always)]
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F {
        s.gather_f16(&self.bytes[at..], self.stride)
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        let bytes = array(|r| self.bytes[at + r * self.stride]);
        s.and(s.load_i8(&bytes), s.splat_i(0xff))
    }
}

/// Blocks of rows that are anywhere.
#[derive(Clone, Copy)]
pub struct Anywhere<'a> {
    /// The rows.
    pub rows: &'a RowSet<'a>,
    /// Where their blocks begin.
    pub at: usize,
}

impl Rows for Anywhere<'_> {
    #[inline(always)]
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4] {
        s.transpose_set(self.rows, self.at + at)
    }

    #[inline(always)]
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F {
        s.gather_f16_set(self.rows, self.at + at)
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        s.and(
            s.load_i8(self.rows.bytes::<1>(self.at + at).as_flattened().first_chunk().unwrap_or(&[0; ROWS])),
            s.splat_i(0xff),
        )
    }
}

/// Unit by unit the 16 rows: what begins at byte `at` of a block begins at byte 16 · `at` here.
#[derive(Clone, Copy)]
pub struct SideBySide<'a>(pub &'a [u8]);

impl SideBySide<'_> {
    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> &[u8; N] {
        let found = self.0[at..].first_chunk();
        found.unwrap_or(&[0; N]) // no block is shorter than its units
    }
}

impl Rows for SideBySide<'_> {
    #[inline(always)]
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4] {
        array(|j| s.load_b(self.bytes(ROWS * (at + 4 * j))))
    }

    #[inline(always)]
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F {
        s.load_f16(self.bytes(ROWS * at))
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        s.and(s.load_i8(self.bytes(ROWS * at)), s.splat_i(0xff))
    }
}

/// A block of all `m` rows of a matrix by columns, or some after it, too: what begins at byte `at` of a row's block begins at byte m · `at`. Of bytes
/// of elements, rows are in strips: see `sealed/columns.rs`.
#[derive(Clone, Copy)]
pub struct ByColumns<'a> {
    /// The block.
    pub block: &'a [u8],
    /// Rows of the matrix.
    pub m: usize,
}

impl<'a> ByColumns<'a> {
    /// Puts the 16 rows from `first` on, of this format, side by side.
    #[inline(always)]
    pub fn side_by_side<S: Simd, F: Format>(self, s: S, first: usize, out: &mut [u8]) {
        let rows = RowsOf { columns: self, first };
        let mut at = 0;
        for &(size, n) in F::UNITS {
            for _ in 0..n {
                let to = &mut out[ROWS * at..][..ROWS * size];
                match (to.first_chunk_mut(), plane_of(F::PLANES, at)) {
                    (Some(to), Some(plane)) => s.store_b(self.elements(s, plane, at, first), to),
                    (Some(to), None) => s.store_b(rows.four(s, at), to),
                    (None, _) => to.copy_from_slice(&self.block[at * self.m + first * size..][..ROWS * size]),
                }
                at += size;
            }
        }
    }

    /// Four bytes of elements, of each of 16 rows.
    #[inline(always)]
    fn elements<S: Simd>(&self, s: S, plane: Plane, at: usize, first: usize) -> S::I {
        let (strip, k, n) = (first / STRIP, first % STRIP / ROWS, plane.in_byte());
        let (offset, from, mask) = (strip / n, (strip % n) as u32 * plane.bits, s.splat_i(plane.mask()));
        let mut all = s.splat_i(0);
        for place in 0..n {
            let offset = offset + place * (self.m / n / STRIP);
            let bytes = s.zip_strip(array(|i| self.strip((at + i) * (self.m / STRIP) + offset)), k);
            all = s.or(all, s.shl(s.and(s.shr(bytes, from), mask), place as u32 * plane.bits));
        }
        all
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
