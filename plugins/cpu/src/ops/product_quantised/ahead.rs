//! What products of quantised weights prefetch.

use crate::ops::product::Product;
use crate::quant::{Format, ROWS};
use crate::simd::{Prefetcher, prefetch};
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
