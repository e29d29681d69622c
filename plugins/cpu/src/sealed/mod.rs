//! The layout that `seal` makes of matrices: 16 rows side by side, unit by unit, so that products read one stream.
//!
//! A block is a row of units ([`Format::UNITS`]); a float is a block of one unit, as are two of bfloat16. Of 16 rows, unit u of
//! row 0 is followed by unit u of row 1, and so on, block after block: what begins at byte b of the rows begins at byte 16 · b
//! of the panel. Rows after the last whole panel of a matrix stay as they are. Nothing is lost, and no byte is added.

mod columns;

pub use columns::{COLUMNS, Columns};

use crate::quant::{Format, ROWS, with_format};
use crate::simd::{Isa, Simd, dispatch};
use llmrt_plugin::{DType, Layout, TensorView, abi::types as c};

/// Number of the layout.
pub const ROWS_16: u32 = 1;

/// What `seal` makes of a weight.
#[derive(Clone, Copy)]
pub enum Seal {
    /// Rows side by side.
    Panels(Panels),
    /// Columns one after the other.
    Columns(Columns),
}

impl Seal {
    /// What products of a tensor gain from; `None`: the file's layout.
    pub fn of(t: &TensorView<'_>) -> Option<Seal> {
        let columns = Columns::of(t).filter(|_| columns::is_worth(t)).map(Seal::Columns);
        columns.or_else(|| Panels::of(t).filter(|_| is_worth(t)).map(Seal::Panels))
    }

    /// That of a sealed tensor; `None` for a layout that its shape does not have.
    pub fn of_sealed(t: &TensorView<'_>) -> Option<Seal> {
        match t.layout_id() {
            ROWS_16 => Panels::of(t).map(Seal::Panels),
            COLUMNS => Columns::of(t).map(Seal::Columns),
            _ => None,
        }
    }

    /// Bytes of the tensor.
    pub fn n_bytes(&self) -> usize {
        match self {
            Seal::Panels(panels) => panels.n_bytes(),
            Seal::Columns(columns) => columns.n_bytes(),
        }
    }

    /// Changes the bytes of the tensor.
    pub fn seal(&self, isa: Isa, bytes: &mut [u8]) {
        match self {
            Seal::Panels(panels) => panels.seal(isa, bytes),
            Seal::Columns(columns) => columns.seal(isa, bytes),
        }
    }

    /// Bytes `off..` of the tensor as they were before.
    pub fn read(&self, sealed: &[u8], off: usize, out: &mut [u8]) {
        match self {
            Seal::Panels(panels) => panels.read(sealed, off, out),
            Seal::Columns(columns) => columns.read(sealed, off, out),
        }
    }

    /// What is reported of it.
    pub fn layout(&self, nbytes: u64) -> Layout {
        match self {
            Seal::Panels(_) => layout(nbytes),
            Seal::Columns(_) => columns::layout(nbytes),
        }
    }
}

/// What `seal` reports.
pub fn layout(nbytes: u64) -> Layout {
    let flags = c::LAYOUT_INVERTIBLE | c::LAYOUT_ROW_SLICEABLE | c::LAYOUT_STORABLE;
    Layout { id: ROWS_16, flags, stored_bytes: nbytes, row_granularity: ROWS as u64, name: "rows16" }
}

/// Whether products gain from rows side by side: of matrices in a dtype that has panels.
pub fn is_worth(t: &TensorView<'_>) -> bool {
    let is_matrix = matches!(t.role(), c::ROLE_MATRIX | c::ROLE_MATRIX_OF_ZEROS | c::ROLE_EXPERTS);
    is_matrix && t.flags() & c::TENSOR_WEIGHT != 0 && Panels::of(t).is_some()
}

/// A tensor as panels of 16 rows.
#[derive(Clone, Copy, PartialEq)]
pub struct Panels {
    units: &'static [(usize, usize)],
    row_bytes: usize,
    /// Rows of a matrix, and matrices.
    n_rows: usize,
    n_matrices: usize,
}

impl Panels {
    /// The panels of a tensor without gaps; `None` if it has none.
    pub fn of(t: &TensorView<'_>) -> Option<Panels> {
        let (dtype, ne) = (t.dtype()?, t.ne());
        let units = units(dtype)?;
        let is_whole = ne[0] > 0 && ne[0].is_multiple_of(dtype.block_elems()) && t.is_contiguous();
        let row_bytes = ne[0] / dtype.block_elems() * dtype.block_bytes();
        let panels = Panels { units, row_bytes, n_rows: ne[1], n_matrices: ne[2] * ne[3] };
        let is_whole = is_whole && row_bytes.is_multiple_of(n_bytes(units));
        (is_whole && ne[1] >= ROWS).then_some(panels)
    }

    /// Bytes of the tensor.
    pub fn n_bytes(&self) -> usize {
        self.row_bytes * self.n_rows * self.n_matrices
    }

    /// Puts the rows of all panels side by side.
    pub fn seal(&self, isa: Isa, bytes: &mut [u8]) {
        let mut rows = vec![0; self.panel_bytes()];
        for matrix in bytes.chunks_exact_mut(self.row_bytes * self.n_rows) {
            for panel in matrix.chunks_exact_mut(rows.len()) {
                rows.copy_from_slice(panel);
                interleave(isa, self, &rows, panel);
            }
        }
    }

    /// Bytes `off..` of the tensor as they were before [`Panels::seal`].
    pub fn read(&self, sealed: &[u8], off: usize, out: &mut [u8]) {
        let mut row = vec![0; self.row_bytes];
        let (mut at, end) = (off, off + out.len());
        while at < end {
            let (i, from) = (at / self.row_bytes, at % self.row_bytes);
            let n = (self.row_bytes - from).min(end - at);
            self.row(sealed, i, &mut row);
            out[at - off..][..n].copy_from_slice(&row[from..from + n]);
            at += n;
        }
    }

    /// Row `i` of all rows of the tensor.
    pub fn row(&self, sealed: &[u8], i: usize, out: &mut [u8]) {
        let (matrix, i) = (i / self.n_rows, i % self.n_rows);
        let start = (matrix * self.n_rows + i / ROWS * ROWS) * self.row_bytes;
        if i / ROWS * ROWS + ROWS > self.n_rows {
            return out.copy_from_slice(&sealed[start + i % ROWS * self.row_bytes..][..self.row_bytes]);
        }
        let panel = &sealed[start..][..self.panel_bytes()];
        self.each_run(|at, size, n| {
            let (from, to) = (&panel[ROWS * at..][..ROWS * n], &mut out[at..at + n]);
            let units = from.chunks_exact(size).skip(i % ROWS).step_by(ROWS);
            to.chunks_exact_mut(size).zip(units).for_each(|(to, unit)| to.copy_from_slice(unit));
        });
    }

    fn panel_bytes(&self) -> usize {
        ROWS * self.row_bytes
    }

    /// Calls `run` with the first byte in the row, the bytes of a unit, and the bytes of each run of units of a row.
    #[inline(always)]
    fn each_run(&self, mut run: impl FnMut(usize, usize, usize)) {
        let mut at = 0;
        while at < self.row_bytes {
            for &(size, count) in self.units {
                let n = self.run(at, size * count);
                run(at, size, n);
                at += n;
            }
        }
    }

    /// Bytes of the run of units at byte `at` of a row: those of a block, or many where blocks have one kind of unit.
    #[inline(always)]
    fn run(&self, at: usize, in_block: usize) -> usize {
        const LONGEST: usize = 256;
        match self.units {
            [_] => LONGEST.min(self.row_bytes - at),
            _ => in_block,
        }
    }
}

dispatch! {
    /// A panel out of its 16 rows.
    fn interleave(panels: &Panels, rows: &[u8], panel: &mut [u8]) = interleave_impl;
}

// Without closures: one that is not inlined would lack the instruction set.
#[inline(always)]
fn interleave_impl<S: Simd>(s: S, panels: &Panels, rows: &[u8], panel: &mut [u8]) {
    let (stride, mut at) = (panels.row_bytes, 0);
    while at < panels.row_bytes {
        for &(size, count) in panels.units {
            let n = panels.run(at, size * count);
            let (rows, to) = (&rows[at..], &mut panel[ROWS * at..][..ROWS * n]);
            match size {
                4 if n >= 16 => {
                    // The last 16 bytes may overlap those before them: what they share is written twice.
                    for i in (0..n).step_by(16) {
                        let i = i.min(n - 16);
                        words(s, &rows[i..], stride, &mut to[ROWS * i..]);
                    }
                }
                2 if n >= 16 => {
                    for i in (0..n).step_by(16) {
                        let i = i.min(n - 16);
                        halves(s, &rows[i..], stride, &mut to[ROWS * i..]);
                    }
                }
                4 => one_by_one::<4>(rows, stride, to),
                2 => one_by_one::<2>(rows, stride, to),
                _ => one_by_one::<1>(rows, stride, to),
            }
            at += n;
        }
    }
}

/// Four units of 4 bytes of 16 rows, `stride` bytes apart, side by side.
#[inline(always)]
fn words<S: Simd>(s: S, rows: &[u8], stride: usize, to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<64>();
    let words = s.transpose(rows, stride);
    for i in 0..4 {
        s.store_b(words[i], &mut to[i]);
    }
}

/// Eight units of 2 bytes of 16 rows, `stride` bytes apart, side by side.
#[inline(always)]
fn halves<S: Simd>(s: S, rows: &[u8], stride: usize, to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<64>();
    let words = s.transpose(rows, stride);
    for i in 0..4 {
        let mut pairs = [0; 64];
        s.store_b(words[i], &mut pairs);
        for r in 0..ROWS {
            (to[i][2 * r], to[i][2 * r + 1]) = (pairs[4 * r], pairs[4 * r + 1]);
            (to[i][32 + 2 * r], to[i][33 + 2 * r]) = (pairs[4 * r + 2], pairs[4 * r + 3]);
        }
    }
}

/// Units of `N` bytes of 16 rows, `stride` bytes apart, side by side.
#[inline(always)]
fn one_by_one<const N: usize>(rows: &[u8], stride: usize, to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<N>();
    let n = to.len() / ROWS;
    for r in 0..ROWS {
        let (row, _) = rows[r * stride..][..n * N].as_chunks::<N>();
        for (to, unit) in to.chunks_exact_mut(ROWS).zip(row) {
            to[r] = *unit;
        }
    }
}

/// What a block of a dtype is made of; `None` for those that have no panels.
fn units(dtype: DType) -> Option<&'static [(usize, usize)]> {
    match dtype {
        DType::F32 => Some(&[(4, 1)]),
        DType::F16 => Some(&[(2, 1)]),
        // Pairs, as products read them.
        DType::BF16 => Some(&[(4, 1)]),
        _ => with_format!(dtype, F => Some(F::UNITS), else None),
    }
}

/// Bytes of units.
fn n_bytes(units: &[(usize, usize)]) -> usize {
    units.iter().map(|(size, n)| size * n).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_of_every_format_make_up_whole_blocks() {
        for &dtype in DType::ALL {
            let Some(units) = units(dtype) else { continue };
            let n_blocks = if dtype == DType::BF16 { 2 } else { 1 };
            assert_eq!(n_bytes(units), n_blocks * dtype.block_bytes(), "{dtype}");
        }
    }

    /// The panels of 37 rows, twice, of `n_blocks` blocks, or pairs.
    fn panels(dtype: DType, n_blocks: usize) -> Panels {
        let units = units(dtype).unwrap();
        Panels { units, row_bytes: n_blocks * n_bytes(units), n_rows: 37, n_matrices: 2 }
    }

    fn bytes(panels: &Panels) -> Vec<u8> {
        (0..panels.n_bytes()).map(|i| (i * i / 7 + i) as u8).collect()
    }

    #[test]
    fn every_instruction_set_makes_the_same_panels() {
        for &dtype in DType::ALL {
            let Some(units) = units(dtype) else { continue };
            for n_blocks in [1, 3, 40, 151] {
                let panels = panels(dtype, n_blocks);
                let bytes = bytes(&panels);
                let mut by_hand = bytes.clone();
                for matrix in 0..2 {
                    for panel in 0..2 {
                        let start = (matrix * 37 + panel * ROWS) * panels.row_bytes;
                        let mut to = start;
                        let mut at = 0;
                        for &(size, n) in std::iter::repeat_n(units, n_blocks).flatten() {
                            for from in (at..at + size * n).step_by(size) {
                                for row in 0..ROWS {
                                    let from = start + row * panels.row_bytes + from;
                                    by_hand[to..to + size].copy_from_slice(&bytes[from..from + size]);
                                    to += size;
                                }
                            }
                            at += size * n;
                        }
                    }
                }
                for isa in Isa::available() {
                    let mut sealed = bytes.clone();
                    panels.seal(isa, &mut sealed);
                    assert!(sealed == by_hand, "{dtype}, {n_blocks} blocks, {}", isa.name());
                }
            }
        }
    }

    #[test]
    fn every_part_of_sealed_panels_reads_back_and_rows_after_them_stay() {
        for dtype in
            [DType::F16, DType::BF16, DType::F32, DType::Q4_0, DType::Q5_1, DType::Q6_K, DType::MXFP4]
        {
            let panels = panels(dtype, 3);
            let (bytes, row_bytes) = (bytes(&panels), panels.row_bytes);
            let mut sealed = bytes.clone();
            panels.seal(Isa::best(), &mut sealed);
            assert_ne!(sealed[..ROWS * row_bytes], bytes[..ROWS * row_bytes]);
            let rest = 32 * row_bytes..37 * row_bytes;
            assert_eq!(sealed[rest.clone()], bytes[rest]);
            for (off, n) in
                [(0, bytes.len()), (1, 1), (row_bytes - 1, 2), (40 * row_bytes + 5, 7 * row_bytes)]
            {
                let mut part = vec![0; n];
                panels.read(&sealed, off, &mut part);
                assert_eq!(part, bytes[off..off + n], "{dtype}, {n} bytes from {off}");
            }
        }
    }
}
