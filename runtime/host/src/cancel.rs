//! Cancellation: a token that any thread may set, and the runs that watch one.

use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A request to stop, shared by its clones. Setting it is one atomic store, so a signal handler may do it.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not set.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Requests that whatever watches the token stops.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Withdraws the request: work started from now on runs.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether stopping is requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// An id that no other run of this process has.
pub(crate) fn next_run_id() -> u64 {
    // Ids that callers of `Host::cancel` choose by hand are small.
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The runs of a host that were given a token. There are few at a time, so a vector it is.
#[derive(Default)]
pub(crate) struct Runs(RwLock<Vec<(u64, CancelToken)>>);

impl Runs {
    /// Lets a run watch a token; each run once.
    pub(crate) fn watch(&self, run_id: u64, token: &CancelToken) {
        let mut runs = self.0.write();
        runs.retain(|(id, _)| *id != run_id);
        runs.push((run_id, token.clone()));
    }

    /// Ends that: the run is over.
    pub(crate) fn forget(&self, run_id: u64) {
        let mut runs = self.0.write();
        runs.retain(|(id, _)| *id != run_id);
    }

    /// Whether a run is to stop: a shared lock, a scan of the running ids, one atomic load.
    pub(crate) fn is_cancelled(&self, run_id: u64) -> bool {
        let runs = self.0.read();
        runs.iter().any(|(id, token)| *id == run_id && token.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cancelled_while_its_token_is_set_and_no_other_run_is() {
        let (runs, token) = (Runs::default(), CancelToken::new());
        runs.watch(1, &token);
        runs.watch(2, &CancelToken::new());
        assert!(!runs.is_cancelled(1));
        token.clone().cancel();
        assert!(runs.is_cancelled(1) && !runs.is_cancelled(2) && !runs.is_cancelled(3));
        token.reset();
        assert!(!runs.is_cancelled(1));
        token.cancel();
        runs.forget(1);
        assert!(!runs.is_cancelled(1));
    }
}
