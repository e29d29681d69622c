//! Prefetch of what kernels need next.

use std::ops::Range;

/// Prefetches the cache line at this address, which may be any.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which changes nothing and does not fail at any address; every such machine has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Prefetches all cache lines of these addresses.
#[inline(always)]
pub fn prefetch_all(addresses: Range<usize>) {
    let lines = (addresses.start & !63..addresses.end).step_by(64);
    lines.for_each(|line| prefetch(std::ptr::without_provenance(line)));
}

/// Prefetches all cache lines of these bytes.
#[inline(always)]
pub fn prefetch_bytes(bytes: &[u8]) {
    let bytes = bytes.as_ptr_range();
    prefetch_all(bytes.start.addr()..bytes.end.addr());
}

/// What is prefetched while vectors are multiplied: a little at each step, as the machine keeps few requests in flight.
pub trait Prefetcher: Copy {
    /// Prefetches what goes with step `i`.
    fn prefetch_step(self, i: usize);
}

/// Nothing.
impl Prefetcher for () {
    #[inline(always)]
    fn prefetch_step(self, _i: usize) {}
}

/// Both.
impl<A: Prefetcher, B: Prefetcher> Prefetcher for (A, B) {
    #[inline(always)]
    fn prefetch_step(self, i: usize) {
        self.0.prefetch_step(i);
        self.1.prefetch_step(i);
    }
}

/// Contiguous bytes, as many at each step.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Where they begin, which may be anywhere.
    pub at: *const u8,
    /// Bytes that go with a step.
    pub each: usize,
}

impl Prefetcher for Stream {
    #[inline(always)]
    fn prefetch_step(self, i: usize) {
        for line in (0..self.each).step_by(64) {
            prefetch(self.at.wrapping_add(i * self.each + line));
        }
    }
}
