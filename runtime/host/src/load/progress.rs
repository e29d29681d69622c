//! Progress of a load, reported to its caller.

use super::{Error, Result};

/// Counts bytes.
pub(super) struct Progress<'a> {
    done: u64,
    total: u64,
    callback: Option<&'a mut dyn FnMut(f32) -> bool>,
}

impl<'a> Progress<'a> {
    pub fn new(total: u64, callback: Option<&'a mut dyn FnMut(f32) -> bool>) -> Progress<'a> {
        Progress { done: 0, total, callback }
    }

    /// `n` more bytes are done; `Cancelled` if the caller stops the load. Only `finish` reports 1.
    pub fn add(&mut self, n: u64) -> Result<()> {
        self.done += n;
        if self.done >= self.total {
            return Ok(());
        }
        let part = self.done as f64 / self.total as f64;
        self.report((part as f32).min(1.0 - f32::EPSILON))
    }

    /// Nothing more is done yet; `Cancelled` as above.
    pub fn check(&mut self) -> Result<()> {
        self.report(1.0 - f32::EPSILON)
    }

    /// All is done.
    pub fn finish(mut self) -> Result<()> {
        self.report(1.0)
    }

    fn report(&mut self, part: f32) -> Result<()> {
        let goes_on = self.callback.as_mut().is_none_or(|callback| callback(part));
        if goes_on { Ok(()) } else { Err(Error::Cancelled) }
    }
}
