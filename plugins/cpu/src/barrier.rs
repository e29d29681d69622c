//! A barrier that prefetches: a member that waits for the rest of its team prefetches what it will read next, so that memory
//! is in use while others compute.

use crate::simd::prefetch_all;
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes that a member prefetches: a quarter of an L2 cache of 1 MiB.
const MAX_PREFETCH_BYTES: usize = 256 << 10;
/// Bytes prefetched between two reads of the counter of arrivals.
const AT_ONCE: usize = 512;

/// Arrivals of all members of a team at all barriers of a run, in a cache line of its own.
#[derive(Default)]
pub struct Arrivals(CachePadded<AtomicUsize>);

impl Arrivals {
    /// Before the first barrier.
    pub fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }
}

/// One member's state from barrier to barrier.
pub struct Member<'a> {
    /// The team's.
    arrivals: &'a Arrivals,
    /// Members.
    n: usize,
    /// Waits for all of them.
    barrier: &'a dyn Fn(),
    /// Barriers that this member reached.
    n_barriers: usize,
    /// Bytes prefetched last, by address.
    prefetched: Range<usize>,
}

impl<'a> Member<'a> {
    /// Before the first barrier.
    pub fn new(arrivals: &'a Arrivals, n: usize, barrier: &'a dyn Fn()) -> Member<'a> {
        Member { arrivals, n, barrier, n_barriers: 0, prefetched: 0..0 }
    }

    /// Waits until all members have arrived. `next` gives the addresses of what this member reads next.
    ///
    /// Arrivals only end the prefetch; the barrier synchronises.
    pub fn wait(&mut self, next: impl FnOnce() -> Range<usize>) {
        self.n_barriers += 1;
        let all = self.n_barriers * self.n;
        if self.arrivals.0.fetch_add(1, Ordering::Relaxed) + 1 < all {
            let next = next();
            if self.prefetched.start != next.start {
                self.prefetched = next.start..next.start;
            }
            let end = next.end.min(next.start + MAX_PREFETCH_BYTES);
            while self.prefetched.end < end && self.arrivals.0.load(Ordering::Relaxed) < all {
                let part = self.prefetched.end..end.min(self.prefetched.end + AT_ONCE);
                self.prefetched.end = part.end;
                prefetch_all(part);
            }
        }
        (self.barrier)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn no_member_passes_a_barrier_before_all_have_arrived_whatever_they_prefetch() {
        const N: usize = 3;
        let (arrivals, barrier) = (Arrivals::default(), Barrier::new(N));
        let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..N {
                scope.spawn(|| {
                    let wait = || _ = barrier.wait();
                    let mut member = Member::new(&arrivals, N, &wait);
                    for (i, done) in done.iter().enumerate() {
                        done.fetch_add(1, Ordering::Relaxed);
                        member.wait(|| i / 10 * 1000..i * 5000 % (2 * MAX_PREFETCH_BYTES));
                        assert_eq!(done.load(Ordering::Relaxed), N);
                    }
                });
            }
        });
    }

    #[test]
    fn prefetched_bytes_are_not_prefetched_again() {
        let arrivals = Arrivals::default();
        let mut member = Member::new(&arrivals, 2, &|| {});
        member.wait(|| 5000..6000);
        assert_eq!(member.prefetched, 5000..6000);
        member.prefetched.end = 7000;
        member.wait(|| 5000..6000);
        assert_eq!(member.prefetched, 5000..7000);
        member.prefetched.end = 5500;
        arrivals.0.store(2, Ordering::Relaxed);
        member.wait(|| 5000..9_000_000);
        assert_eq!(member.prefetched, 5000..5000 + MAX_PREFETCH_BYTES);
        arrivals.0.store(7, Ordering::Relaxed);
        member.wait(|| 7000..8000);
        assert_eq!(member.prefetched, 5000..5000 + MAX_PREFETCH_BYTES, "all had arrived");
        arrivals.0.store(0, Ordering::Relaxed);
        member.wait(|| 0..0);
        assert_eq!(member.prefetched, 0..0);
    }
}
