//! A barrier at which members that left the team count as arrived from then on.

use super::spin_until;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Members that are still there, and how many of them wait.
pub(super) struct Barrier {
    /// Members still in the team, times 2^32, plus members that have arrived.
    counts: AtomicU64,
    /// Goes up by one when all have arrived.
    round: AtomicU32,
    sleepers: AtomicBool,
    lock: Mutex<()>,
    released: Condvar,
    spin: Duration,
}

const MEMBER: u64 = 1 << 32;

impl Barrier {
    pub(super) fn new(n: usize, spin: Duration) -> Barrier {
        Barrier {
            counts: AtomicU64::new(n as u64 * MEMBER),
            round: AtomicU32::new(0),
            sleepers: AtomicBool::new(false),
            lock: Mutex::new(()),
            released: Condvar::new(),
            spin,
        }
    }

    /// Waits until every member has arrived or left.
    pub(super) fn wait(&self) {
        // Cannot change before this member arrives.
        let round = self.round.load(Ordering::Relaxed);
        if self.change(|members, arrived| (members, arrived + 1)) {
            return self.release();
        }
        let over = || self.round.load(Ordering::SeqCst) != round;
        if spin_until(self.spin, over) {
            return;
        }
        let mut guard = self.lock.lock();
        loop {
            // Again after each wake-up: the flag may have been cleared for the round before. A swap, as in `super`.
            self.sleepers.swap(true, Ordering::SeqCst);
            if over() {
                return;
            }
            self.released.wait(&mut guard);
        }
    }

    /// This member will not come again.
    pub(super) fn leave(&self) {
        if self.change(|members, arrived| (members - 1, arrived)) {
            self.release();
        }
    }

    /// Changes the counts; true if that completed a round, whose arrivals are then taken back to zero.
    fn change(&self, step: impl Fn(u64, u64) -> (u64, u64)) -> bool {
        let mut now = self.counts.load(Ordering::Relaxed);
        loop {
            let (members, arrived) = step(now / MEMBER, now % MEMBER);
            let complete = arrived > 0 && arrived == members;
            let next = members * MEMBER + if complete { 0 } else { arrived };
            match self.counts.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return complete,
                Err(current) => now = current,
            }
        }
    }

    /// Starts the next round. Until then all other members wait, so none can arrive in between.
    fn release(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) {
            let _guard = self.lock.lock();
            self.sleepers.store(false, Ordering::SeqCst);
            self.released.notify_all();
        }
    }
}
