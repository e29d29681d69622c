//! A block of each of 16 rows in any layout: row by row as in the file, or interleaved as `seal` leaves it, 16 or all rows.

use super::ROWS;
use crate::simd::{Simd, array};

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

/// A block of all `m` rows of a matrix by columns, of which 16 are used: what begins at byte `at` begins at byte m · `at`.
#[derive(Clone, Copy)]
pub struct ByColumns<'a> {
    /// The block.
    pub block: &'a [u8],
    /// Rows of the matrix.
    pub m: usize,
    /// The first of the 16.
    pub first: usize,
}

impl ByColumns<'_> {
    /// Units of `N` / 16 bytes.
    #[inline(always)]
    fn units<const N: usize>(&self, at: usize) -> &[u8; N] {
        let found = self.block[at * self.m + self.first * (N / ROWS)..].first_chunk();
        found.unwrap_or(&[0; N]) // the matrix has 16 rows from `first` on
    }
}

impl Rows for ByColumns<'_> {
    #[inline(always)]
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4] {
        array(|j| s.zip4(array(|i| self.units(at + 4 * j + i))))
    }

    #[inline(always)]
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F {
        s.load_f16(self.units(at))
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        s.and(s.load_i8(self.units(at)), s.splat_i(0xff))
    }
}

/// The same, of which some bytes are read. The others count as zeros.
#[derive(Clone, Copy)]
pub struct NeededColumns<'a> {
    /// All.
    pub columns: ByColumns<'a>,
    /// 1 for each byte of the block that is needed, else 0.
    pub needed: &'a [u8],
}

impl Rows for NeededColumns<'_> {
    #[inline(always)]
    fn words<S: Simd>(self, s: S, at: usize) -> [S::I; 4] {
        const NONE: &[u8; ROWS] = &[0; ROWS];
        let (needed, _) = self.needed[at..at + 16].as_chunks::<4>();
        let mut words = [s.splat_i(0); 4];
        for j in 0..4 {
            if needed[j] != [0; 4] {
                let byte = |i: usize| self.columns.units(at + 4 * j + i);
                words[j] = s.zip4(array(|i| if needed[j][i] != 0 { byte(i) } else { NONE }));
            }
        }
        words
    }

    #[inline(always)]
    fn f16<S: Simd>(self, s: S, at: usize) -> S::F {
        if self.needed[at] != 0 { self.columns.f16(s, at) } else { s.zero() }
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        if self.needed[at] != 0 { self.columns.byte(s, at) } else { s.splat_i(0) }
    }
}
