//! A block of each of 16 rows in either layout: row by row as in the file, or interleaved as `seal` leaves it. Of matrices by
//! columns 16 rows are put side by side first.

use super::{Format, ROWS};
use crate::simd::{STRIP, Simd, array};

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

/// A block of all `m` rows of a matrix by columns: what begins at byte `at` of a row's block begins at byte m · `at`. Of bytes
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
                match to.first_chunk_mut() {
                    Some(to) if F::PLACES.is_elements(at) => {
                        s.store_b(self.elements::<S, F>(s, at, first), to)
                    }
                    Some(to) => s.store_b(rows.four(s, at), to),
                    None => to.copy_from_slice(&self.block[at * self.m + first * size..][..ROWS * size]),
                }
                at += size;
            }
        }
    }

    /// Four bytes of elements, of each of 16 rows.
    #[inline(always)]
    fn elements<S: Simd, F: Format>(&self, s: S, at: usize, first: usize) -> S::I {
        let (strip, k) = (first / STRIP, first % STRIP / ROWS);
        let offset = strip / F::PLACES.in_byte() * STRIP;
        let low = s.zip_strip(array(|i| self.strip((at + i) * self.m + offset)), k);
        if F::PLACES.in_byte() == 1 {
            return low;
        }
        let offset = offset + self.m / 2;
        let high = s.zip_strip(array(|i| self.strip((at + i) * self.m + offset)), k);
        let mask = s.splat_i(0x0f0f_0f0f);
        match strip % 2 {
            0 => s.or(s.and(low, mask), s.shl(s.and(high, mask), 4)),
            _ => s.or(s.and(s.shr(low, 4), mask), s.and(high, s.splat_i(0xf0f0_f0f0_u32 as i32))),
        }
    }

    /// A strip of a column, which begins at this byte of the block.
    #[inline(always)]
    pub fn strip(&self, at: usize) -> &'a [u8; STRIP] {
        let found = self.block.get(at..).and_then(|bytes| bytes.first_chunk());
        found.unwrap_or(&[0; STRIP]) // the matrix has whole strips
    }

    #[inline(always)]
    fn bytes(&self, at: usize, first: usize) -> &[u8; ROWS] {
        let found = self.block[at * self.m + first..].first_chunk();
        found.unwrap_or(&[0; ROWS]) // the matrix has 16 rows from `first` on
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
    /// Four bytes of each row.
    #[inline(always)]
    fn four<S: Simd>(self, s: S, at: usize) -> S::I {
        s.zip4(array(|i| self.columns.bytes(at + i, self.first)))
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
        let found = self.columns.block[at * self.columns.m + 2 * self.first..].first_chunk();
        s.load_f16(found.unwrap_or(&[0; 2 * ROWS])) // the matrix has 16 rows from `first` on
    }

    #[inline(always)]
    fn byte<S: Simd>(self, s: S, at: usize) -> S::I {
        s.and(s.load_i8(self.columns.bytes(at, self.first)), s.splat_i(0xff))
    }
}
