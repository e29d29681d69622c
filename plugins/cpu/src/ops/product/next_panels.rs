//! What products with many columns prefetch of the weights.

use super::Product;
use crate::quant::ROWS;
use crate::simd::{Prefetcher, array, prefetch};
use std::ops::Range;

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
    /// What comes after bytes `part` of the panels from `first` on: the same of the next rows, what follows of the first rows,
    /// or the rows after all these, unless more columns follow; nothing where they are not sealed.
    #[inline(always)]
    pub fn of(p: &Product<'_>, rows: &Range<usize>, first: usize, part: &Range<usize>) -> NextPanels<P> {
        let sealed = |first: usize| p.w.panel([first, p.at[0], p.at[1]]);
        let len = sealed(first).map_or(0, <[u8]>::len);
        let (first, start) = match (first + P * ROWS < rows.end, part.end < len) {
            (true, _) => (first + P * ROWS, part.start),
            (false, true) => (rows.start, part.end),
            (false, false) => (rows.end, 0),
        };
        let Some(panel) = sealed(first) else {
            return NextPanels { at: [std::ptr::null(); P], n_bytes: 0, each: 0 };
        };
        let at = array(|i| panel.as_ptr().wrapping_add(i * panel.len() + start));
        NextPanels { at, n_bytes: part.len().min(panel.len().saturating_sub(start)), each: 0 }
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
