//! What products of quantised weights prefetch.

use crate::ops::product::Product;
use crate::quant::{Format, ROWS};
use crate::simd::{Prefetcher, array, prefetch};
use std::ops::Range;

/// The columns that come next, `distance` bytes after these.
#[derive(Clone, Copy)]
pub struct NextColumns<'a, X, const C: usize> {
    /// These.
    pub x: [&'a [X]; C],
    /// From each to the one that comes in its place.
    pub distance: usize,
}

impl<X: Copy, const C: usize> Prefetcher for NextColumns<'_, X, C> {
    #[inline(always)]
    fn prefetch_step(self, g: usize) {
        for x in self.x {
            prefetch(x.as_ptr().wrapping_add(g).cast::<u8>().wrapping_add(self.distance));
        }
    }
}

/// The sealed panels that are unpacked next, a little with each tile of columns: memory is in use while these are multiplied.
#[derive(Clone, Copy)]
pub struct NextPanels<const P: usize> {
    at: [*const u8; P],
    /// Bytes of each.
    n_bytes: usize,
    /// Bytes of each that go with a step; 0 before they are shared out.
    each: usize,
}

impl<const P: usize> NextPanels<P> {
    /// What comes after groups of the panels from `first` on: the next rows, the next groups of the first rows, or the
    /// rows after all these, unless more columns follow; nothing where they are not sealed.
    #[inline(always)]
    pub fn of<F: Format>(
        p: &Product<'_>,
        rows: &Range<usize>,
        first: usize,
        groups: &Range<usize>,
    ) -> NextPanels<P> {
        let n_groups = p.w.ne[0] / crate::quant::GROUP;
        let (first, start) = match (first + P * ROWS < rows.end, groups.end < n_groups) {
            (true, _) => (first + P * ROWS, groups.start),
            (false, true) => (rows.start, groups.end),
            (false, false) => (rows.end, 0),
        };
        let Some(panel) = p.w.panel([first, p.at[0], p.at[1]]) else {
            return NextPanels { at: [std::ptr::null(); P], n_bytes: 0, each: 0 };
        };
        let bytes = |groups: usize| groups / F::GROUPS * ROWS * F::BLOCK_BYTES;
        let at = array(|i| panel.as_ptr().wrapping_add(i * panel.len() + bytes(start)));
        NextPanels { at, n_bytes: bytes(groups.len().min(n_groups - start)), each: 0 }
    }

    /// The share of columns of all `n_columns`, in `n_steps` steps: whole lines.
    #[inline(always)]
    pub fn share(self, columns: Range<usize>, n_columns: usize, n_steps: usize) -> NextPanels<P> {
        let line = |column: usize| (self.n_bytes * column / n_columns) & !63;
        let (start, end) = (line(columns.start), line(columns.end));
        let at = array(|i| self.at[i].wrapping_add(start));
        NextPanels { at, n_bytes: end - start, each: ((end - start) / n_steps).next_multiple_of(64) }
    }
}

impl<const P: usize> Prefetcher for NextPanels<P> {
    #[inline(always)]
    fn prefetch_step(self, i: usize) {
        for line in (i * self.each..((i + 1) * self.each).min(self.n_bytes)).step_by(64) {
            self.at.iter().for_each(|at| prefetch(at.wrapping_add(line)));
        }
    }
}

/// The weights that are needed next, prefetched while these are unpacked: 16 rows side by side are more streams than
/// the machine foresees.
pub struct NextRows {
    start: *const u8,
    stride: usize,
    lines: usize,
}

impl NextRows {
    /// Groups of the rows from `first` on.
    #[inline(always)]
    pub fn of<F: Format>(p: &Product<'_>, first: usize, groups: Range<usize>) -> NextRows {
        let block = F::BLOCK_BYTES;
        let start = p.w.offset_of([first, p.at[0], p.at[1]]) + groups.start / F::GROUPS * block;
        let n_bytes = groups.len() / F::GROUPS * block;
        NextRows {
            start: p.w.bytes().as_ptr().wrapping_add(start),
            stride: p.w.nb[1],
            lines: n_bytes.div_ceil(64),
        }
    }

    /// The share of block `b` of `n`.
    #[inline(always)]
    pub fn prefetch_step(&self, b: usize, n: usize) {
        let total = self.lines * ROWS;
        for i in total * b / n..total * (b + 1) / n {
            let (row, line) = (i % ROWS, i / ROWS);
            prefetch(self.start.wrapping_add(row * self.stride + line * 64));
        }
    }
}
