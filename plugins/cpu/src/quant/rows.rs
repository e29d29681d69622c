//! A block of each of 16 rows: as in the file, next to each other or anywhere, or side by side as `seal` leaves panels. Those
//! by columns are in [`super::by_columns`].

use super::ROWS;
use crate::simd::{RowSet, Simd, array};

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
