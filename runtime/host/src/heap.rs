//! How much memory this process has: from its C library, which is what tests of plugins look for leaks with, since a
//! plugin in any language usually allocates there; and in all.

/// Bytes allocated and not freed, by this program and all it loaded; `None` where the C library does not report them.
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

/// Returns free pages of the C library to the system, where it can do that. For after something large was freed in many
/// small pieces.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: works under the allocator's own locks, on memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of this process in memory, and the most there ever were (VmRSS and VmHWM); `None` where there is no
/// `/proc/self/status`.
pub fn resident_bytes() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    Some((field("VmRSS")?, field("VmHWM")?))
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

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_touched_is_resident_and_the_peak_stays() {
        let (before, _) = resident_bytes().unwrap();
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        let (with, _) = resident_bytes().unwrap();
        assert!(with >= before + (32 << 20), "{before} {with}");
        drop(bytes);
        trim();
        let (after, peak) = resident_bytes().unwrap();
        // Linux counts pages per processor and adds them up later: the peak can miss the last of them.
        const UNCOUNTED: u64 = 8 << 20;
        assert!(after <= peak + UNCOUNTED && peak + UNCOUNTED >= with, "{after} {peak} {with}");
    }
}
