//! Addresses for cards: real ones of this process, at which nothing can be read or written.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Addresses reserved for all cards of the process; never used twice, so that stale ones are noticed.
const REGION: usize = 4 << 40;

/// Fresh addresses that no code may access directly.
pub fn addresses(len: usize, align: usize) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let base = region()?;
    // A page between any two, so that the end of one is not the start of another.
    let take =
        |at: usize| Some((base + at).next_multiple_of(align) - base + len.next_multiple_of(4096) + 4096);
    let at = NEXT.fetch_update(Relaxed, Relaxed, take).ok()?;
    let start = (base + at).next_multiple_of(align);
    (start + len < base + REGION).then_some(start)
}

/// Whether an address is one of a card.
pub fn is_device(address: usize) -> bool {
    region().is_some_and(|base| (base..base + REGION).contains(&address))
}

fn region() -> Option<usize> {
    static BASE: OnceLock<Option<usize>> = OnceLock::new();
    *BASE.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses; nothing can be read or written in it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), REGION, libc::PROT_NONE, flags, -1, 0) };
        (at != libc::MAP_FAILED).then_some(at as usize)
    })
}
