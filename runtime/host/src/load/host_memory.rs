//! Host memory that devices use in place: parts of a mapped file, and pages of our own.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::{Mapping, page_size};
use super::{Error, Result};
use crate::HostMemory;

/// A part of a mapped file, which it keeps mapped.
pub(super) struct MappedPart {
    mapping: Arc<Mapping>,
    range: Range<u64>,
}

impl MappedPart {
    /// `None` if the range is not mapped as a whole.
    pub fn new(mapping: Arc<Mapping>, range: Range<u64>) -> Option<MappedPart> {
        mapping.bytes(range.clone())?;
        Some(MappedPart { mapping, range })
    }
}

// SAFETY: `new` found the range mapped, and a shared mapping cannot be trimmed any more. It is mapped for reading only;
// that another program may write to the file is the limit that `mapping` describes.
unsafe impl HostMemory for MappedPart {
    fn as_ptr(&self) -> *const u8 {
        self.mapping.bytes(self.range.clone()).map_or(std::ptr::null(), <[u8]>::as_ptr)
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

/// Memory of our own: whole pages, zero at first.
pub(super) struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages are owned by this value; nothing is tied to a thread.
unsafe impl Send for Pages {}
// SAFETY: with `&Pages` they can only be read.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `n` bytes of memory.
    pub fn new(n: u64) -> Result<Pages> {
        let failed = |reason: io::Error| Error::HostMemory { what: format!("weights ({reason})"), n };
        let len = usize::try_from(n.max(1)).ok().and_then(|n| n.checked_next_multiple_of(page_size()));
        let len = len.ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0)
        };
        let base = if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast::<u8>()) };
        Ok(Pages { base: base.ok_or_else(|| failed(io::Error::last_os_error()))?, len })
    }

    /// The bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is as long as this, its bytes are zero or written, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

// SAFETY: the mapping ends with this value, and only `bytes_mut`, which requires exclusive access, writes to it.
unsafe impl HostMemory for Pages {
    fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
