//! The layout that `seal` makes of matrices whose inputs are mostly zeros: what is multiplied with zeros alone is not read.
//!
//! A block is a row of units ([`Format::UNITS`]); those of elements are bytes, and a float is a unit. Unit u of row 0 is followed
//! by unit u of row 1, and so on: of a matrix of m rows, what begins at byte a of the rows begins at byte m · a. Nothing is
//! lost, and no byte is added.
//!
//! Of bytes of elements ([`Plane`]), 64 rows at a time are a strip, in the order of [`in_strip`]. Where a byte has bits of n
//! elements of a row, it becomes one of n rows: m / n bytes of the elements in the lowest bits, then those of the elements in
//! the next bits, and so on, each byte with n strips, the first in the lowest bits.

use super::units;
use crate::quant::{Format, Plane, ROWS, plane_of, turn, with_format};
use crate::simd::{Isa, STRIP, Simd, dispatch, in_strip};
use llmrt_plugin::{DType, Layout, TensorView, abi::types as c};

/// Number of the layout; another one for each order of bytes, since sealed weights are stored.
pub const COLUMNS: u32 = 4;

/// What `seal` reports.
pub fn layout(nbytes: u64) -> Layout {
    let flags = c::LAYOUT_INVERTIBLE | c::LAYOUT_STORABLE;
    Layout { id: COLUMNS, flags, stored_bytes: nbytes, row_granularity: ROWS as u64, name: "columns" }
}

/// Whether a matrix is worth it: one whose inputs are mostly zeros.
pub fn is_worth(t: &TensorView<'_>) -> bool {
    t.role() == c::ROLE_MATRIX_OF_ZEROS && t.flags() & c::TENSOR_WEIGHT != 0 && Columns::of(t).is_some()
}

/// A matrix by columns.
#[derive(Clone, Copy, PartialEq)]
pub struct Columns {
    dtype: DType,
    block_bytes: usize,
    row_bytes: usize,
    n_rows: usize,
    planes: &'static [Plane],
    /// Rows that are put side by side at a time.
    at_once: usize,
}

impl Columns {
    /// The columns of a matrix without gaps, whose rows are whole panels or whole strips that share bytes; `None` if it has none.
    pub fn of(t: &TensorView<'_>) -> Option<Columns> {
        let [k, m, rest @ ..] = t.ne();
        let columns = Columns::of_matrix(t.dtype()?, k, m)?;
        (rest == [1, 1] && t.is_contiguous()).then_some(columns)
    }

    /// Those of `m` rows of `k` elements.
    fn of_matrix(dtype: DType, k: usize, m: usize) -> Option<Columns> {
        let (planes, each) = with_format!(dtype, F => (F::PLANES, turn::<F>()), else (&[][..], ROWS));
        let block_bytes: usize = units(dtype)?.iter().map(|(size, n)| size * n).sum();
        let row_bytes = k / dtype.block_elems() * dtype.block_bytes();
        let is_whole = k.is_multiple_of(dtype.block_elems()) && row_bytes.is_multiple_of(block_bytes);
        // Products count strips in a few blocks of all rows in 32 bits.
        let is_small = m.checked_mul(block_bytes).is_some_and(|n| u32::try_from(n).is_ok());
        let fits = is_whole && k > 0 && m > 0 && m.is_multiple_of(each) && is_small;
        fits.then_some(Columns {
            dtype,
            block_bytes,
            row_bytes,
            n_rows: m,
            planes,
            at_once: each.max(2 * STRIP),
        })
    }

    /// Bytes of the matrix.
    pub fn n_bytes(&self) -> usize {
        self.row_bytes * self.n_rows
    }

    /// Puts the units of all rows side by side.
    pub fn seal(&self, isa: Isa, bytes: &mut [u8]) {
        let all = bytes.to_vec();
        // Of some rows byte after byte those of elements.
        let mut by_bytes = vec![0; if self.planes.is_empty() { 0 } else { self.row_bytes * self.at_once }];
        for first in (0..self.n_rows).step_by(self.at_once) {
            let n = self.at_once.min(self.n_rows - first);
            let rows = &all[first * self.row_bytes..][..n * self.row_bytes];
            if !by_bytes.is_empty() {
                transpose(isa, rows, self.row_bytes, &mut by_bytes);
            }
            self.each_unit(|at, size, plane| {
                let column = &mut bytes[at * self.n_rows..][..size * self.n_rows];
                if let Some(plane) = plane {
                    let of_rows = &by_bytes[at * n..][..n];
                    return match plane.in_byte() {
                        1 => self.strips::<1>(plane, of_rows, first, column),
                        2 => self.strips::<2>(plane, of_rows, first, column),
                        4 => self.strips::<4>(plane, of_rows, first, column),
                        _ => self.strips::<8>(plane, of_rows, first, column),
                    };
                }
                let to = &mut column[first * size..][..n * size];
                for (to, row) in to.chunks_exact_mut(size).zip(rows.chunks_exact(self.row_bytes)) {
                    to.copy_from_slice(&row[at..at + size]);
                }
            });
        }
    }

    /// Puts a byte of `N` elements of each of some rows where they are in its column.
    fn strips<const N: usize>(&self, plane: Plane, of_rows: &[u8], first: usize, column: &mut [u8]) {
        let mask = plane.mask() as u8;
        for (i, strips) in of_rows.as_chunks::<STRIP>().0.as_chunks::<N>().0.iter().enumerate() {
            let mut ordered = [[0; STRIP]; N];
            for (strip, ordered) in strips.iter().zip(&mut ordered) {
                // Four rows next to each other stay so.
                for (at, four) in ordered.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    four.copy_from_slice(&strip[in_strip(4 * at)..][..4]);
                }
            }
            for (place, column) in column.chunks_exact_mut(self.n_rows / N).enumerate() {
                for (row, to) in column[first / N + i * STRIP..][..STRIP].iter_mut().enumerate() {
                    let bits = |k: usize| (ordered[k][row] >> (place * 8 / N) & mask) << (k * 8 / N);
                    *to = (0..N).fold(0, |byte, k| byte | bits(k));
                }
            }
        }
    }

    /// A row's byte of elements, of their column.
    fn of_strip(&self, plane: Plane, column: &[u8], row: usize) -> u8 {
        let (strip, n, mask) = (row / STRIP, plane.in_byte(), plane.mask() as u8);
        let at = strip / n * STRIP + in_strip(row % STRIP);
        let bits = |place: usize| {
            let byte = column[place * (self.n_rows / n) + at];
            (byte >> (strip % n * 8 / n) & mask) << (place * 8 / n)
        };
        (0..n).fold(0, |byte, place| byte | bits(place))
    }

    /// Bytes `off..` of the matrix as they were before [`Columns::seal`].
    pub fn read(&self, sealed: &[u8], off: usize, out: &mut [u8]) {
        let mut units = Vec::with_capacity(self.row_bytes);
        self.each_unit(|at, size, plane| units.extend((0..size).map(|i| (at, size, i, plane))));
        for (out, place) in out.iter_mut().zip(off..) {
            let (row, (at, size, i, plane)) = (place / self.row_bytes, units[place % self.row_bytes]);
            let column = &sealed[at * self.n_rows..][..size * self.n_rows];
            *out = plane.map_or_else(|| column[row * size + i], |plane| self.of_strip(plane, column, row));
        }
    }

    /// Calls `unit` with the first byte and the bytes of each unit of a row, and the plane of a byte of elements.
    fn each_unit(&self, mut unit: impl FnMut(usize, usize, Option<Plane>)) {
        let mut at = 0;
        while at < self.row_bytes {
            for &(size, count) in units(self.dtype).unwrap_or_default() {
                for _ in 0..count {
                    match plane_of(self.planes, at % self.block_bytes) {
                        None => unit(at, size, None),
                        plane => (at..at + size).for_each(|at| unit(at, 1, plane)),
                    }
                    at += size;
                }
            }
        }
    }
}

dispatch! {
    /// Byte b of row r to byte b · n + r, of n rows, a multiple of 16, of at least 16 bytes.
    fn transpose(rows: &[u8], row_bytes: usize, out: &mut [u8]) = transpose_impl;
}

#[inline(always)]
fn transpose_impl<S: Simd>(s: S, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let n = rows.len() / row_bytes;
    for first in (0..n).step_by(ROWS) {
        for at in (0..row_bytes).step_by(16) {
            // The last 16 bytes may overlap those before them: what they share is written twice.
            let at = at.min(row_bytes - 16);
            let words = s.transpose(&rows[first * row_bytes + at..], row_bytes);
            for i in 0..16 {
                // From -128 to 127, as they are stored.
                let byte = s.and(s.shr(words[i / 4], 8 * (i % 4) as u32), s.splat_i(0xff));
                let byte = s.sub_i(s.xor(byte, s.splat_i(0x80)), s.splat_i(0x80));
                if let Some(to) = out[(at + i) * n + first..].first_chunk_mut() {
                    s.store_i8(byte, to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant;

    #[test]
    fn every_part_of_sealed_columns_reads_back() {
        for &dtype in DType::ALL {
            for (k, m) in [(256, 16), (768, 80), (256, 128), (512, 384), (256, 512), (512, 1536)] {
                let Some(columns) = Columns::of_matrix(dtype, k, m) else {
                    assert!(!quant::is_supported(dtype) || m % 512 != 0, "{dtype}, {k} by {m}");
                    continue;
                };
                let bytes: Vec<u8> = (0..columns.n_bytes()).map(|i| (i * i / 7 + i) as u8).collect();
                let mut sealed = bytes.clone();
                columns.seal(Isa::best(), &mut sealed);
                let row = columns.row_bytes;
                for (off, n) in [(0, bytes.len()), (1, 1), (row - 1, 2), (5 * row + 1, 3 * row)] {
                    let mut part = vec![0; n];
                    columns.read(&sealed, off, &mut part);
                    assert_eq!(part, bytes[off..off + n], "{dtype}, {n} bytes from {off}");
                }
            }
        }
    }

    #[test]
    fn a_byte_of_two_elements_becomes_one_of_two_rows() {
        let columns = Columns::of_matrix(DType::Q4_0, 64, 128).unwrap();
        let bytes: Vec<u8> = (0..columns.n_bytes()).map(|i| (i % 251) as u8).collect();
        let mut sealed = bytes.clone();
        columns.seal(Isa::best(), &mut sealed);
        let of_row = |row: usize| bytes[36 * row + 20];
        for row in 0..64 {
            let column = &sealed[(18 + 2) * 128..][..128];
            let i = in_strip(row);
            assert_eq!([column[i] & 15, column[i] >> 4], [of_row(row) & 15, of_row(64 + row) & 15]);
            assert_eq!([column[64 + i] & 15, column[64 + i] >> 4], [of_row(row) >> 4, of_row(64 + row) >> 4]);
        }
    }
}
