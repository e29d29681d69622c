//! How many bytes of neurons a device gets: computing takes more memory with them, and how much is known only after placing.

/// How often a limit changes; each takes a placement.
const MAX_TRIALS: u32 = 10;

/// A search for the most bytes of neurons for which a device has memory, by halving.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    /// Most bytes of neurons in the next placement; `None`: all that there seems to be room for.
    most: Option<u64>,
    /// The most bytes that fitted.
    fit: u64,
    /// The fewest bytes that did not.
    too_many: Option<u64>,
    n_trials: u32,
}

impl Limit {
    /// Bytes of neurons to place where there seems to be so much room.
    pub fn of(&self, room: u64) -> u64 {
        self.most.map_or(room, |most| most.min(room))
    }

    /// Whether not even a few neurons fitted.
    pub fn is_none(&self) -> bool {
        self.most == Some(0)
    }

    /// So many bytes of neurons were placed, and so many bytes are missing; `step` bytes or fewer make no difference. Whether fewer
    /// neurons can be tried.
    pub fn failed(&mut self, placed: u64, missing: u64, step: u64) -> bool {
        // The last trials place what fitted before, then nothing.
        if placed == 0 || self.n_trials > MAX_TRIALS + 1 {
            return false;
        }
        self.too_many = Some(placed);
        self.n_trials += 1;
        if self.fit >= placed {
            self.fit = 0;
        }
        // As if the memory to compute in grew with the neurons alone.
        let (wide_placed, wide_missing) = (u128::from(placed), u128::from(missing));
        let scaled = (wide_placed * wide_placed / (wide_placed + wide_missing)) as u64;
        let next = if scaled > self.fit { scaled } else { self.fit + (placed - self.fit) / 2 };
        self.most = Some(match self.is_found(step) {
            true => self.fit,
            false => next.min(placed.saturating_sub(step)).max(self.fit),
        });
        true
    }

    /// So many bytes of neurons were placed, and all fits. Whether more can be tried.
    pub fn fitted(&mut self, placed: u64, step: u64) -> bool {
        let Some(too_many) = self.too_many else { return false };
        self.fit = self.fit.max(placed);
        if self.is_found(step) {
            return false;
        }
        self.n_trials += 1;
        self.most = Some(self.fit + too_many.saturating_sub(self.fit) / 2);
        true
    }

    /// Whether trying more is not worth a placement.
    fn is_found(&self, step: u64) -> bool {
        let gap = self.too_many.unwrap_or(u64::MAX).saturating_sub(self.fit);
        self.n_trials >= MAX_TRIALS || gap <= step.max(self.fit / 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are placed in the end, and how many placements it took, where so many bytes of neurons take so many.
    fn found(room: u64, free: u64, step: u64, takes: impl Fn(u64) -> u64) -> (u64, u32) {
        let mut limit = Limit::default();
        for n in 1..100 {
            let placed = limit.of(room) / step * step;
            let missing = takes(placed).saturating_sub(free);
            let goes_on = match missing {
                0 => limit.fitted(placed, step),
                _ => limit.failed(placed, missing, step),
            };
            if !goes_on {
                assert!(missing == 0 || placed == 0);
                return (placed, n);
            }
        }
        panic!("no end");
    }

    #[test]
    fn nearly_as_much_is_placed_as_fits_however_computing_grows() {
        let no_more = |n: u64| n;
        assert_eq!(found(1000, 1000, 10, no_more), (1000, 1));
        let same = |n: u64| n + 100;
        let twice = |n: u64| 3 * n;
        let jump = |n: u64| n + if n > 200 { 900 } else { 0 };
        let most = |n: u64| n + (3 * n).min(600);
        for (takes, best) in [(&same as &dyn Fn(u64) -> u64, 900), (&twice, 333), (&jump, 200), (&most, 400)]
        {
            let (placed, n) = found(1000, 1000, 10, takes);
            assert!(placed <= best && placed * 20 >= best * 18 && n <= 12, "{placed} of {best} in {n}");
        }
        assert_eq!(found(1000, 1000, 10, |n| if n > 0 { 2000 } else { 0 }).0, 0);
        assert_eq!(found(1000, 1000, 10, |_| 2000).0, 0);
        assert!(!Limit::default().failed(0, 7, 10));
        // Neurons that stay whatever the limit is.
        let mut limit = Limit::default();
        assert!((0..100).filter(|_| limit.failed(500, 7, 10)).count() < 20);
    }
}
