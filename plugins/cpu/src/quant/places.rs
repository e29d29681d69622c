//! Where a block has its elements, of formats in which each is in one byte: what few of them need is read alone.

/// Where the elements of a block are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Places {
    /// Some have bits in several bytes.
    Scattered,
    /// A byte each, from this byte of the block on.
    Bytes(usize),
    /// Four bits each, from byte `start` on: the low bits of `pair` bytes, the high bits of these, and so on.
    Nibbles {
        /// First byte.
        start: usize,
        /// Bytes between two elements of a byte.
        pair: usize,
    },
}

impl Places {
    /// The byte of element `i`, and whether it is the high bits of it.
    #[inline(always)]
    pub fn of(self, i: usize) -> (usize, bool) {
        match self {
            Places::Scattered => (0, false),
            Places::Bytes(start) => (start + i, false),
            Places::Nibbles { start, pair } => (start + i / (2 * pair) * pair + i % pair, i / pair % 2 == 1),
        }
    }

    /// Whether a byte of the block is an element, or two.
    #[inline(always)]
    pub fn is_elements(self, byte: usize) -> bool {
        match self {
            Places::Scattered => false,
            Places::Bytes(start) | Places::Nibbles { start, .. } => byte >= start,
        }
    }

    /// Elements in a byte that has some.
    #[inline(always)]
    pub fn in_byte(self) -> usize {
        if matches!(self, Places::Nibbles { .. }) { 2 } else { 1 }
    }

    /// Where the column of element `i` begins, of `m` rows of a matrix by columns: elements of two rows share a byte where
    /// two of a row did.
    #[inline(always)]
    pub fn column(self, i: usize, m: usize) -> usize {
        let (byte, is_high) = self.of(i);
        byte * m + usize::from(is_high) * (m / 2)
    }
}
