//! What products of quantised weights prefetch.

use crate::quant::{Format, ROWS};
use crate::simd::{Prefetcher, RowSet, prefetch};
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
    /// Where the groups of each row begin.
    starts: [*const u8; ROWS],
    /// Bytes of a block, which are prefetched at each step.
    each: usize,
}

impl NextRows {
    /// Groups of these rows.
    #[inline(always)]
    pub fn of<F: Format>(rows: &RowSet<'_>, groups: &Range<usize>) -> NextRows {
        let [start, n_bytes] = [groups.start, groups.len()].map(|groups| groups / F::GROUPS * F::BLOCK_BYTES);
        NextRows { starts: rows.pointers(start, n_bytes), each: F::BLOCK_BYTES }
    }
}

impl Prefetcher for &NextRows {
    #[inline(always)]
    fn prefetch_step(self, i: usize) {
        // The lines that begin in a block, of all rows: most short blocks have none.
        for line in (i * self.each).div_ceil(64)..((i + 1) * self.each).div_ceil(64) {
            for start in self.starts {
                prefetch(start.wrapping_add(line * 64));
            }
        }
    }
}
