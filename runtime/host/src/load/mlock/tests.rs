//! Locks on pages, as the kernel lists them.

use super::*;

/// Pages of memory. Shared, so that the kernel does not list them as one with their neighbours.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(n: usize) -> Pages {
        let len = n * page_size();
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches no memory of ours.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Pages(at.cast(), len)
    }

    fn byte(&self, i: usize) -> *const u8 {
        self.0.wrapping_add(i)
    }

    /// Kilobytes that the kernel has locked of the first page's mapping.
    fn locked_kb(&self) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", self.0.addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.find(|line| line.starts_with("Locked:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nothing else uses it.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn a_lock_grows_by_whole_pages_and_ends_when_dropped() {
    let (pages, page) = (Pages::new(4), page_size());
    let mut locks = MemoryLocks::default();
    for (end, locked) in [(1, page), (page, page), (page + 1, 2 * page), (10, 2 * page)] {
        assert_eq!(locks.grow_to(pages.byte(0), pages.byte(end)), None);
        assert_eq!(locks.n_locked(), locked, "up to {end}");
    }
    assert_eq!(pages.locked_kb(), 2 * page / 1024);
    drop(locks);
    assert_eq!(pages.locked_kb(), 0);
}

#[test]
fn ranges_locked_since_can_be_unlocked_again() {
    let (first, second, page) = (Pages::new(1), Pages::new(1), page_size());
    let mut locks = MemoryLocks::default();
    locks.grow_to(first.byte(0), first.byte(page));
    let n = locks.n_ranges();
    locks.grow_to(second.byte(0), second.byte(page));
    assert_eq!((first.locked_kb(), second.locked_kb()), (page / 1024, page / 1024));
    locks.undo(n);
    assert_eq!((first.locked_kb(), second.locked_kb()), (page / 1024, 0));
}

#[test]
fn a_refusal_warns_once_with_the_limit_and_sticks() {
    let page = page_size();
    let pages = Pages::new(3);
    // SAFETY: the last page was made by `Pages::new` and nothing uses it; a page without access cannot be locked.
    unsafe { libc::mprotect(pages.byte(2 * page).cast_mut().cast(), page, libc::PROT_NONE) };
    let mut locks = MemoryLocks::default();
    assert_eq!(locks.grow_to(pages.byte(0), pages.byte(page)), None);
    let warning = locks.grow_to(pages.byte(0), pages.byte(3 * page)).unwrap();
    assert!(warning.contains("RLIMIT_MEMLOCK") && warning.contains("ulimit -l"), "{warning}");
    assert_eq!(locks.grow_to(pages.byte(0), pages.byte(3 * page)), None);
    assert_eq!(locks.grow_to(pages.byte(0), pages.byte(2 * page)), None);
    assert_eq!(locks.n_locked(), page);
}
