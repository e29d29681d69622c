//! What a caller sees of long work, and how it ends it.

use crate::digest::Digest;
use crate::error::{Error, Result};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A step of long work.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The manifest, or a hub's list of files, is requested.
    Manifest,
    /// So many bytes of a blob are transferred.
    Transfer {
        /// The blob; `None` while its digest is to be computed.
        digest: Option<Digest>,
        /// Bytes that are there, those of an earlier run included.
        done: u64,
        /// All bytes; `None` if the server does not state it.
        total: Option<u64>,
    },
    /// A blob is there already.
    Exists {
        /// The blob.
        digest: Digest,
    },
    /// A connection broke or a server was busy: the request is repeated after a wait.
    Retry {
        /// What happened.
        why: String,
        /// How long the wait is.
        wait: Duration,
    },
    /// All blobs are there; the manifest is written.
    Finish,
}

/// Gets events, and may cancel: the work then ends with [`Error::Cancelled`] and keeps what can be continued.
pub struct Watch<'a> {
    /// Is called with each event.
    pub show: &'a mut dyn FnMut(&Event),
    /// Whether the work is to end.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl Watch<'_> {
    /// Shows nothing, never cancels. A closure without captures has no size, so the box allocates nothing.
    pub fn none() -> Watch<'static> {
        Watch { show: Box::leak(Box::new(|_: &Event| {})), is_cancelled: &|| false }
    }
}

impl Watch<'_> {
    pub(crate) fn show(&mut self, event: Event) {
        (self.show)(&event);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if (self.is_cancelled)() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Waits, unless it is cancelled.
    pub(crate) fn wait(&self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(POLL));
        }
    }
}

/// How often waiting work looks whether it is cancelled.
pub(crate) const POLL: Duration = Duration::from_millis(50);
