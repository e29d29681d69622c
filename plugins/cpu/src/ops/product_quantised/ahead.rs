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
    /// Lines of all rows, and those that go with a step.
    n_lines: usize,
    each: usize,
}

impl NextRows {
    /// Groups of these rows, in as many steps as they have blocks.
    #[inline(always)]
    pub fn of<F: Format>(rows: &RowSet<'_>, groups: &Range<usize>) -> NextRows {
        let [start, n_bytes] = [groups.start, groups.len()].map(|groups| groups / F::GROUPS * F::BLOCK_BYTES);
        let n_lines = n_bytes.div_ceil(64) * ROWS;
        // As many at each step: memory answers more slowly to all rows at once.
        let each = n_lines.div_ceil((groups.len() / F::GROUPS).max(1));
        NextRows { starts: rows.pointers(start, n_bytes), n_lines, each }
    }

    /// Prefetches what goes with step `i`.
    #[inline(always)]
    pub fn prefetch_step(&self, i: usize) {
        for i in i * self.each..((i + 1) * self.each).min(self.n_lines) {
            let (row, line) = (i % ROWS, i / ROWS);
            prefetch(self.starts[row].wrapping_add(line * 64));
        }
    }
}
