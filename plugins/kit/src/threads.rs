//! The host's team of threads, with panics of a body turned into an error.

use crate::error::panic_text;
use crate::{Error, Result};
use core::ffi::c_void;
use llmrt_abi::types as c;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// The process's one thread pool, lent by the host.
#[derive(Clone, Copy)]
pub struct Threads(&'static c::HostThreads);

// SAFETY: the pool's functions may be called from any thread, and its table does not change.
unsafe impl Send for Threads {}
// SAFETY: as above.
unsafe impl Sync for Threads {}

/// A member of a running team.
pub struct Team<'a> {
    index: usize,
    len: usize,
    team: *mut c_void,
    run: &'a Run<'a>,
}

/// What the members of one team share.
struct Run<'a> {
    body: &'a (dyn Fn(&Team<'_>) + Sync),
    threads: Threads,
    failed: AtomicBool,
    message: Mutex<Option<String>>,
}

/// Payload of the quiet unwinding that takes the others out of a body after one of them panicked.
struct Abandoned;

impl Threads {
    /// Looks at the host's table.
    ///
    /// # Safety
    /// `api` is NULL or a table that outlives the plugin's use of it.
    pub unsafe fn new(api: *const c::HostThreads) -> Option<Threads> {
        // SAFETY: the caller's promise.
        let api = unsafe { api.as_ref() }?;
        let whole = api.struct_size as usize >= size_of::<c::HostThreads>();
        (whole && api.n_threads.is_some() && api.run.is_some() && api.barrier.is_some())
            .then_some(Threads(api))
    }

    /// Threads in the pool, the caller included.
    pub fn n_threads(&self) -> usize {
        // SAFETY: a function of the host's table with its own context.
        self.0.n_threads.map_or(1, |f| unsafe { f(self.0.ctx) } as usize).max(1)
    }

    /// Runs `body` on `n` threads, the caller being member 0; returns when all have left it. `n` is clamped to
    /// 1..=[`Threads::n_threads`]. A panic in a body becomes an error; the others leave at their next barrier.
    pub fn run(&self, n: usize, body: &(dyn Fn(&Team<'_>) + Sync)) -> Result<()> {
        let n = n.clamp(1, self.n_threads());
        let run = Run { body, threads: *self, failed: AtomicBool::new(false), message: Mutex::new(None) };
        let arg = std::ptr::from_ref(&run).cast_mut().cast();
        let Some(start) = self.0.run else { return Err(Error::internal("the host's pool has no run")) };
        // SAFETY: `run` outlives the call, which returns only when every member has left `member`.
        let status = unsafe { start(self.0.ctx, n as u32, Some(member), arg) };
        if let Some(message) = run.message.into_inner() {
            return Err(Error::internal(message).scope(crate::Scope::Plugin));
        }
        match status {
            0 => Ok(()),
            code => Err(Error::internal(format!(
                "the host's thread pool returned {code}; the host's log has the cause"
            ))),
        }
    }
}

impl Team<'_> {
    /// This member's number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Members.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Waits until every member has come here. Leaves the body if one of them panicked.
    pub fn barrier(&self) {
        if let Some(barrier) = self.run.threads.0.barrier.filter(|_| self.len > 1) {
            // SAFETY: `team` is the one the host gave to this member, which is still in the body.
            unsafe { barrier(self.team) }
        }
        if self.run.failed.load(Ordering::Acquire) {
            resume_unwind(Box::new(Abandoned));
        }
    }

    /// This member's share of `0..n` in whole multiples of `step`: shares differ by at most one step.
    pub fn share(&self, n: usize, step: usize) -> std::ops::Range<usize> {
        let step = step.max(1);
        let n_steps = n.div_ceil(step);
        let at = |i: usize| (n_steps * i / self.len * step).min(n);
        at(self.index)..at(self.index + 1)
    }
}

/// One member's way through the body.
unsafe extern "C" fn member(arg: *mut c_void, team: *mut c_void, i: u32, n: u32) {
    // SAFETY: `arg` is the `Run` that `Threads::run` keeps until every member is back.
    let run = unsafe { &*arg.cast::<Run<'_>>() };
    let team = Team { index: i as usize, len: n as usize, team, run };
    let Err(payload) = catch_unwind(AssertUnwindSafe(|| (run.body)(&team))) else { return };
    if !payload.is::<Abandoned>() {
        let message = format!("panic on thread {i} of {n}: {}", panic_text(&*payload));
        let mut slot = run.message.lock();
        slot.get_or_insert(message);
        // Released before this member counts as gone, so every member that passes the barrier sees it.
        run.failed.store(true, Ordering::Release);
    }
    std::mem::forget(payload);
}
