//! 16 rows of bytes, wherever they are.

use super::{LANES, array};
use std::marker::PhantomData;

/// 16 rows that have as many bytes each.
#[derive(Clone, Copy)]
pub struct RowSet<'a> {
    at: [*const u8; LANES],
    n_bytes: usize,
    rows: PhantomData<&'a [u8]>,
}

impl<'a> RowSet<'a> {
    /// These rows, as far as the shortest goes.
    #[inline(always)]
    pub fn new(rows: [&'a [u8]; LANES]) -> RowSet<'a> {
        let n_bytes = rows.iter().map(|row| row.len()).min().unwrap_or(0);
        RowSet { at: array(|r| rows[r].as_ptr()), n_bytes, rows: PhantomData }
    }

    /// Where byte `at` of each row is, from which `n` are readable. Panics if the rows have fewer.
    #[inline(always)]
    pub fn pointers(&self, at: usize, n: usize) -> [*const u8; LANES] {
        assert!(at <= self.n_bytes && n <= self.n_bytes - at, "{n} bytes from {at} of {}", self.n_bytes);
        array(|r| self.at[r].wrapping_add(at))
    }

    /// `N` bytes of each row, from byte `at` on.
    #[inline(always)]
    pub fn bytes<const N: usize>(&self, at: usize) -> [[u8; N]; LANES] {
        let rows = self.pointers(at, N);
        // SAFETY: `pointers` checked that each row has these bytes, which the lifetime keeps.
        array(|r| unsafe { rows[r].cast::<[u8; N]>().read() })
    }
}
