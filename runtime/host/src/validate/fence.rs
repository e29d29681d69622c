//! Memory with a pattern on both sides, which shows when a plugin writes past what it was given.

use llmrt_abi::types as c;

/// Rows of pattern on either side.
const ROWS: usize = 8;
const BYTE: u8 = 0xc5;
const WORD: u64 = u64::from_ne_bytes([BYTE; 8]);

/// An error struct for a plugin to fill.
#[repr(C)]
pub(crate) struct FencedError {
    before: [u64; 2],
    pub(crate) error: c::Error,
    after: [u64; 2],
}

impl FencedError {
    pub(crate) fn empty() -> FencedError {
        FencedError { before: [WORD; 2], error: c::Error::empty(), after: [WORD; 2] }
    }

    /// Whether only the error was written, and not its size.
    pub(crate) fn is_whole(&self) -> bool {
        let size = size_of::<c::Error>() as u32;
        self.before == [WORD; 2] && self.after == [WORD; 2] && self.error.struct_size == size
    }
}

/// Plain values for a plugin to fill.
pub(crate) struct Fenced<T>(Vec<T>);

/// A value whose bytes may be anything.
pub(crate) trait Plain: Copy + Default + PartialEq {
    /// The value that fences are filled with.
    const FENCE: Self;
}

impl Plain for u8 {
    const FENCE: u8 = BYTE;
}

impl Plain for c::Verdict {
    // No plugin has a reason to answer this.
    const FENCE: c::Verdict =
        c::Verdict { support: BYTE, reason: BYTE, fuse_group: 0xc5c5, est_us: 1.5e30, workspace: WORD };
}

impl<T: Plain> Fenced<T> {
    /// `n` default values between fences.
    pub(crate) fn new(n: usize) -> Fenced<T> {
        let mut rows = vec![T::FENCE; n + 2 * ROWS];
        rows[ROWS..ROWS + n].fill(T::default());
        Fenced(rows)
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.0[ROWS..].as_mut_ptr()
    }

    pub(crate) fn rows(&self) -> &[T] {
        &self.0[ROWS..self.0.len() - ROWS]
    }

    /// Whether the fences are as they were.
    pub(crate) fn is_whole(&self) -> bool {
        let n = self.0.len();
        self.0[..ROWS].iter().chain(&self.0[n - ROWS..]).all(|row| *row == T::FENCE)
    }

    /// The values without their fences.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.rows().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_past_either_end_shows() {
        for at in [ROWS - 1, ROWS + 3] {
            let mut bytes = Fenced::<u8>::new(3);
            assert!(bytes.is_whole() && bytes.rows() == [0; 3]);
            bytes.0[at] = 0;
            assert!(!bytes.is_whole());
        }
    }

    #[test]
    fn an_error_shows_writes_around_it_and_to_its_size() {
        assert!(FencedError::empty().is_whole());
        assert!(!FencedError { after: [WORD, 0], ..FencedError::empty() }.is_whole());
        let mut e = FencedError::empty();
        e.error.struct_size = 0;
        assert!(!e.is_whole());
    }
}
