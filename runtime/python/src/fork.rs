//! Forks. A fork has the memory of its parent and none of its threads: models that are open there cannot compute here, and
//! plugins, which a process has once, are initialised with threads that are not here.

use crate::error::Failure;
use parking_lot::Mutex;
use std::process::id;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The process that has models open, and how many: its id in the upper half.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// A model that is open in this process.
pub struct OpenModel {
    process: u32,
}

impl OpenModel {
    /// Counts one more; an error where the process that this one is a fork of had models open.
    pub fn new() -> Result<OpenModel, Failure> {
        let process = id();
        let add = |now: u64| {
            let (owner, n_open) = ((now >> 32) as u32, now & u64::from(u32::MAX));
            let is_forked = owner != process && n_open > 0;
            (!is_forked).then(|| u64::from(process) << 32 | if owner == process { n_open + 1 } else { 1 })
        };
        OPEN.fetch_update(SeqCst, SeqCst, add).map_err(|_| Failure::Forked)?;
        Ok(OpenModel { process })
    }
}

impl Drop for OpenModel {
    fn drop(&mut self) {
        if self.process == id() {
            OPEN.fetch_sub(1, SeqCst);
        }
    }
}

/// What this process has opened, with its threads, until it is closed. A fork can neither use nor end it.
pub struct Owned<T> {
    open: Mutex<Option<T>>,
    process: u32,
}

impl<T> Owned<T> {
    /// Open.
    pub fn new(value: T) -> Owned<T> {
        Owned { open: Mutex::new(Some(value)), process: id() }
    }

    /// Runs `body` on it, where it is open.
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        if self.is_forked() {
            // Its lock may be held by a thread that is not here.
            return Err(Failure::Forked);
        }
        body(self.open.lock().as_mut().ok_or(Failure::Closed)?)
    }

    /// Closes it, and returns what is to be ended; none in a fork, or where it is closed.
    pub fn take(&self) -> Option<T> {
        if self.is_forked() { None } else { self.open.lock().take() }
    }

    /// Whether it can be used.
    pub fn is_open(&self) -> bool {
        !self.is_forked() && self.open.lock().is_some()
    }

    fn is_forked(&self) -> bool {
        self.process != id()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_forked() {
            // Its threads are in another process, so nothing would end.
            std::mem::forget(self.open.get_mut().take());
        }
    }
}
