//! How members of a team wait for each other: whoever is there first asks for what it will read next, so that memory has
//! something to do while others compute.

use crate::simd::prefetch_all;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes a member asks for at most before it needs them: a quarter of a second cache of 1 MiB.
const MAX_PREFETCH_BYTES: usize = 256 << 10;
/// Bytes it asks for between two looks at who is there.
const AT_ONCE: usize = 512;

/// How often members of a team came to a meeting, all together, in a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub struct Arrivals(AtomicUsize);

impl Arrivals {
    /// No meeting was yet.
    pub fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }
}

/// One member's way from meeting to meeting.
pub struct Member<'a> {
    /// The team's.
    arrivals: &'a Arrivals,
    /// Members.
    n: usize,
    /// Waits for all of them.
    barrier: &'a dyn Fn(),
    /// Meetings of this member.
    n_meetings: usize,
    /// Bytes asked for last, by address.
    asked: Range<usize>,
}

impl<'a> Member<'a> {
    /// Before the first meeting.
    pub fn new(arrivals: &'a Arrivals, n: usize, barrier: &'a dyn Fn()) -> Member<'a> {
        Member { arrivals, n, barrier, n_meetings: 0, asked: 0..0 }
    }

    /// Waits until all are here. `next` gives the addresses of what this member reads next.
    ///
    /// Arrivals are hints of when to stop asking; who waits for whom is settled by the barrier.
    pub fn meet(&mut self, next: impl FnOnce() -> Range<usize>) {
        self.n_meetings += 1;
        let all = self.n_meetings * self.n;
        if self.arrivals.0.fetch_add(1, Ordering::Relaxed) + 1 < all {
            let next = next();
            if self.asked.start != next.start {
                self.asked = next.start..next.start;
            }
            let end = next.end.min(next.start + MAX_PREFETCH_BYTES);
            while self.asked.end < end && self.arrivals.0.load(Ordering::Relaxed) < all {
                let part = self.asked.end..end.min(self.asked.end + AT_ONCE);
                self.asked.end = part.end;
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
    fn nobody_passes_a_meeting_before_all_are_there_whatever_they_ask_for() {
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
                        member.meet(|| i / 10 * 1000..i * 5000 % (2 * MAX_PREFETCH_BYTES));
                        assert_eq!(done.load(Ordering::Relaxed), N);
                    }
                });
            }
        });
    }

    #[test]
    fn what_was_asked_for_is_not_asked_for_again() {
        let arrivals = Arrivals::default();
        let mut member = Member::new(&arrivals, 2, &|| {});
        member.meet(|| 5000..6000);
        assert_eq!(member.asked, 5000..6000);
        member.asked.end = 7000;
        member.meet(|| 5000..6000);
        assert_eq!(member.asked, 5000..7000);
        member.asked.end = 5500;
        arrivals.0.store(2, Ordering::Relaxed);
        member.meet(|| 5000..9_000_000);
        assert_eq!(member.asked, 5000..5000 + MAX_PREFETCH_BYTES);
        arrivals.0.store(7, Ordering::Relaxed);
        member.meet(|| 7000..8000);
        assert_eq!(member.asked, 5000..5000 + MAX_PREFETCH_BYTES, "all were there");
        arrivals.0.store(0, Ordering::Relaxed);
        member.meet(|| 0..0);
        assert_eq!(member.asked, 0..0);
    }
}
