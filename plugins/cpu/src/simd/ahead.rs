//! What kernels ask memory for before they need it.

use std::ops::Range;

/// Asks for the cache line at this address, which may be any.
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

/// Asks for all cache lines of these addresses.
#[inline(always)]
pub fn prefetch_all(addresses: Range<usize>) {
    let lines = (addresses.start & !63..addresses.end).step_by(64);
    lines.for_each(|line| prefetch(std::ptr::without_provenance(line)));
}

/// What is asked of memory while vectors are multiplied: a bit at each step, as the machine keeps few requests at a time.
pub trait Ahead: Copy {
    /// Asks for what goes with step `i`.
    fn ask(self, i: usize);
}

/// Nothing.
impl Ahead for () {
    #[inline(always)]
    fn ask(self, _i: usize) {}
}

/// Bytes that lie in a row, as many at each step.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Where they begin, which may be anywhere.
    pub at: *const u8,
    /// Bytes that go with a step.
    pub each: usize,
}

impl Ahead for Stream {
    #[inline(always)]
    fn ask(self, i: usize) {
        for line in (0..self.each).step_by(64) {
            prefetch(self.at.wrapping_add(i * self.each + line));
        }
    }
}
