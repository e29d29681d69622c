//! Bounds the work in flight on a stream, so that a cancel takes effect soon: enqueued work cannot be taken back. A run is
//! enqueued in parts; before the next part starts, the part before the previous one has ended.

use crate::{Error, Event, Host, Result};
use std::collections::VecDeque;
use std::time::Duration;

/// Parts that are enqueued and may run: while one runs the next is ready, so the device does not idle.
const MAX_PARTS: usize = 2;

/// How long a wait lasts before it looks for a cancel again.
const POLL: Duration = Duration::from_millis(10);

/// The parts in flight of a stream, each with an event at its end.
pub struct InFlight<E> {
    host: Host,
    /// Launches that make a part.
    part_launches: usize,
    /// Launches since the last event.
    n_launches: usize,
    marks: VecDeque<E>,
    spare: Vec<E>,
}

impl<E: Event> InFlight<E> {
    /// Nothing is in flight. A part ends after `part_launches` launches, of one run or of several.
    pub fn new(host: Host, part_launches: usize) -> InFlight<E> {
        InFlight { host, part_launches, n_launches: 0, marks: VecDeque::new(), spare: Vec::new() }
    }

    /// An error if the run was cancelled.
    pub fn check(&self, run_id: u64) -> Result<()> {
        if self.host.cancelled(run_id) { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// After `n_launches` were enqueued. At the end of a part records an event, and waits until at most [`MAX_PARTS`] are in
    /// flight. A cancel ends the wait; what is in flight then runs to its end.
    pub fn enqueued(
        &mut self,
        run_id: u64,
        n_launches: usize,
        make: impl FnOnce() -> Result<E>,
        record: impl FnOnce(&E) -> Result<()>,
    ) -> Result<()> {
        self.check(run_id)?;
        self.n_launches += n_launches;
        if self.n_launches < self.part_launches {
            return Ok(());
        }
        let event = self.spare.pop().map_or_else(make, Ok)?;
        record(&event)?;
        self.n_launches = 0;
        self.marks.push_back(event);
        while self.marks.len() > MAX_PARTS
            && let Some(oldest) = self.marks.front()
        {
            if oldest.wait(POLL)? {
                self.spare.extend(self.marks.pop_front());
            }
            self.check(run_id)?;
        }
        Ok(())
    }

    /// The stream is idle: all events were reached.
    pub fn clear(&mut self) {
        self.n_launches = 0;
        self.spare.extend(self.marks.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_abi::Status;
    use llmrt_abi::types as c;
    use std::ffi::c_void;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// An event that is reached after some waits.
    struct Slow(Arc<AtomicU32>);

    impl Event for Slow {
        fn query(&self) -> Result<bool> {
            Ok(self.0.load(Relaxed) == 0)
        }

        fn wait(&self, _timeout: Duration) -> Result<bool> {
            Ok(self.0.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err())
        }
    }

    /// Cancels run 7 once it was checked so often.
    static N_CHECKS: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn cancelled(_: *mut c_void, run_id: u64) -> u32 {
        (run_id == 7 && N_CHECKS.fetch_add(1, Relaxed) >= 6).into()
    }

    fn host() -> Host {
        // SAFETY: every field of the table may be zero, which is NULL or 0.
        let mut api: c::HostApi = unsafe { std::mem::zeroed() };
        api.struct_size = size_of::<c::HostApi>() as u32;
        api.cancelled = Some(cancelled);
        // SAFETY: a table that lives until the process ends.
        unsafe { Host::new(Box::leak(Box::new(api))) }
    }

    #[test]
    fn a_run_waits_for_the_part_before_the_previous_one_and_a_cancel_ends_the_wait() {
        let mut parts = InFlight::new(host(), 10);
        let waits = Arc::new(AtomicU32::new(3));
        let mut n_made = 0;
        let mut part = |parts: &mut InFlight<Slow>, run_id| {
            let make = || {
                n_made += 1;
                Ok(Slow(waits.clone()))
            };
            parts.enqueued(run_id, 4, || unreachable!("in the middle of a part"), |_| Ok(()))?;
            parts.enqueued(run_id, 6, make, |_| Ok(()))
        };
        for _ in 0..2 {
            part(&mut parts, 1).unwrap();
        }
        assert_eq!(waits.load(Relaxed), 3, "two parts may be in flight");
        part(&mut parts, 1).unwrap();
        assert_eq!(waits.load(Relaxed), 0, "before a third the first has ended");
        part(&mut parts, 1).unwrap();
        waits.store(u32::MAX, Relaxed);
        let e = part(&mut parts, 7).unwrap_err();
        assert_eq!((e.status, e.scope), (Status::Cancelled, llmrt_abi::Scope::Call));
        assert!(waits.load(Relaxed) > u32::MAX - 20, "a wait that would not have ended");
        parts.clear();
        part(&mut parts, 1).unwrap();
        assert_eq!(n_made, 3, "events are used again");
    }
}
