//! How a run ends early when the host cancels it.
//!
//! All threads of a team leave the graph after the same barrier, or one would wait for ever: thread 0 announces the
//! number of that barrier before it arrives there. Until then nodes that hand out pieces ([`crate::ops::Output::take`])
//! skip what is left of them, so that the barrier is near; what the run has written by then counts for nothing.

use llmrt_plugin::Host;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the run at hand is cancelled.
pub struct Cancel {
    host: Host,
    run_id: u64,
    /// Whether a thread has noticed. Never unset within a run.
    seen: AtomicBool,
    /// The barrier after which all threads leave, counted from 1.
    last_barrier: AtomicUsize,
}

impl Cancel {
    /// Of runs of this host.
    pub fn new(host: Host) -> Cancel {
        Cancel { host, run_id: 0, seen: AtomicBool::new(false), last_barrier: AtomicUsize::new(usize::MAX) }
    }

    /// Another run begins.
    pub fn begin(&mut self, run_id: u64) {
        self.run_id = run_id;
        *self.seen.get_mut() = false;
        *self.last_barrier.get_mut() = usize::MAX;
    }

    /// Whether the run is cancelled; costs a call of the host until it is.
    pub fn poll(&self) -> bool {
        if !self.seen() && self.host.cancelled(self.run_id) {
            self.seen.store(true, Ordering::Relaxed);
        }
        self.seen()
    }

    /// Whether a thread has noticed that.
    pub fn seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// For thread 0 alone, before it arrives at a barrier: announces whether it is the last one.
    pub fn announce(&self, barrier: usize) {
        if self.last_barrier.load(Ordering::Relaxed) > barrier && self.poll() {
            self.last_barrier.store(barrier, Ordering::Relaxed);
        }
    }

    /// Whether all leave after this barrier, which the calling thread has passed. The barrier orders the accesses;
    /// thread 0 may have announced the next one meanwhile, which is a greater number.
    pub fn is_last(&self, barrier: usize) -> bool {
        self.last_barrier.load(Ordering::Relaxed) <= barrier
    }
}
