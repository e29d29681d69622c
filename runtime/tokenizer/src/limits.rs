//! What one encoding may cost: the number of tokens, the length of a word, memory that may run out, a cancel flag.

use crate::error::{Error, Result};

/// The longest token in bytes. The longest of published vocabularies have a few hundred.
pub(crate) const MAX_TOKEN_BYTES: usize = 2048;

/// The most symbols that are merged as one word. A word of this length takes about 0.4 GB while it is merged.
pub(crate) const MAX_WORD: usize = 4 << 20;

/// What an encoding or rendering may cost.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// A text of more tokens is an error.
    pub max_tokens: usize,
    /// Polled every few thousand symbols; once it returns true the work ends with [`Error::Cancelled`].
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl Limits<'static> {
    /// No limit on the number of tokens, and no cancel flag.
    pub const NONE: Limits<'static> = Limits { max_tokens: usize::MAX, is_cancelled: &|| false };
}

/// The ids of an encoding in progress, within [`Limits`].
pub(crate) struct Output<'a> {
    ids: Vec<u32>,
    limits: Limits<'a>,
    until_poll: u32,
}

/// Steps of work between two polls of the cancel flag: below a millisecond each time.
const POLL_INTERVAL: u32 = 4096;

impl<'a> Output<'a> {
    pub fn new(limits: Limits<'a>) -> Self {
        Self { ids: Vec::new(), limits, until_poll: 1 }
    }

    pub fn push(&mut self, id: u32) -> Result<()> {
        self.check_room(1)?;
        reserve(&mut self.ids, 1)?;
        self.ids.push(id);
        self.step()
    }

    /// An error if `n_more` tokens are too many.
    pub fn check_room(&self, n_more: usize) -> Result<()> {
        let most = self.limits.max_tokens;
        if n_more > most - self.ids.len() { Err(Error::TooManyTokens { most }) } else { Ok(()) }
    }

    /// Counts a step of work; an error once the work is cancelled.
    pub fn step(&mut self) -> Result<()> {
        self.until_poll -= 1;
        if self.until_poll == 0 {
            self.until_poll = POLL_INTERVAL;
            if (self.limits.is_cancelled)() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
    }

    pub fn into_ids(self) -> Vec<u32> {
        self.ids
    }
}

/// Room for `n_more` items, or an error where there is no memory.
pub(crate) fn reserve<T>(items: &mut Vec<T>, n_more: usize) -> Result<()> {
    items.try_reserve(n_more).map_err(|_| out_of_memory::<T>(items.len() + n_more))
}

pub(crate) fn out_of_memory<T>(n: usize) -> Error {
    Error::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()) }
}
