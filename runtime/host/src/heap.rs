//! How much memory this process has from its C library: what tests of plugins look for leaks with, since a plugin in
//! any language usually allocates there.

/// Bytes allocated and not freed, by this program and everything it loaded; `None` where the C library does not say.
pub fn bytes_in_use() -> Option<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: reads the allocator's own counters, under its locks.
        let about = unsafe { libc::mallinfo2() };
        Some(about.uordblks as u64 + about.hblkhd as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let Some(before) = bytes_in_use() else { return };
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(bytes_in_use() >= Some(before + (32 << 20)));
        drop(bytes);
    }
}
