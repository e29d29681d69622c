//! Keeps memory from being swapped out: locks ranges that grow while a model loads.

use std::io;

use super::mapping::page_size;

/// Locked memory, as far as the system lets us; unlocked when dropped.
///
/// The first refusal sticks: nothing more is tried, what is locked stays so, and the load goes on. Drop this before
/// the memory itself is unmapped or freed, or a later owner of the addresses may find them unlocked.
#[derive(Debug, Default)]
pub struct MemoryLocks {
    ranges: Vec<Locked>,
    refused: bool,
}

/// `n` bytes from address `base` on, both whole pages.
#[derive(Debug)]
struct Locked {
    base: usize,
    n: usize,
}

impl MemoryLocks {
    /// Locks the pages from `base` to `end`, without those that an earlier call with this `base` has locked.
    ///
    /// The first refusal gives a warning for the user; after it this does nothing.
    pub fn grow_to(&mut self, base: *const u8, end: *const u8) -> Option<String> {
        let page = page_size();
        let base = base.addr() / page * page;
        let target = end.addr().saturating_sub(base).next_multiple_of(page);
        let known = self.ranges.iter().position(|r| r.base == base);
        let locked = known.map_or(0, |i| self.ranges[i].n);
        if self.refused || target <= locked {
            return None;
        }
        // SAFETY: locking changes no byte; if pages are not there, the answer is an error.
        let code = unsafe { libc::mlock((base + locked) as *const libc::c_void, target - locked) };
        if code != 0 {
            self.refused = true;
            return Some(warning(target - locked, self.n_locked(), &io::Error::last_os_error()));
        }
        match known {
            Some(i) => self.ranges[i].n = target,
            None => self.ranges.push(Locked { base, n: target }),
        }
        None
    }

    /// How many ranges are locked; for [`MemoryLocks::undo`].
    pub fn n_ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Unlocks all ranges but the first `n`.
    pub fn undo(&mut self, n: usize) {
        self.ranges.truncate(n);
    }

    /// How many bytes are locked.
    pub fn n_locked(&self) -> usize {
        self.ranges.iter().map(|r| r.n).sum()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: unlocking changes no byte; if pages are not there any more, the answer is an error.
        unsafe { libc::munlock(self.base as *const libc::c_void, self.n) };
    }
}

fn warning(n: usize, locked: usize, reason: &io::Error) -> String {
    let limit = memlock_limit().map_or("unlimited".into(), |n| format!("{n} bytes"));
    format!(
        "cannot lock {n} more bytes in memory ({locked} are locked): {reason}; RLIMIT_MEMLOCK is {limit}: raise it \
         with `ulimit -l unlimited` or a memlock line in limits.conf; loading goes on without"
    )
}

/// RLIMIT_MEMLOCK in bytes; `None`: no limit.
pub fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to the struct that it is given.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (code == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests;
