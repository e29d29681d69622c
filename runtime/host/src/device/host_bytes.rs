//! Host memory of its own that devices may use in place: what `import_host` is tried with.

use super::HostMemory;
use std::ptr::NonNull;

/// Page-aligned bytes, handed over to the importing device; the host does not access them afterwards.
pub struct HostBytes {
    ptr: NonNull<u8>,
    len: usize,
    read_only: bool,
}

/// Alignment that every device can import.
const PAGE: usize = 4096;

// SAFETY: plain memory; access goes through buffers alone.
unsafe impl Send for HostBytes {}
// SAFETY: as above.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    /// A copy of `bytes`; `None` if there are none or memory is short. `read_only` is the flag that devices get.
    pub fn new(bytes: &[u8], read_only: bool) -> Option<HostBytes> {
        let layout = layout(bytes.len())?;
        // SAFETY: the layout has at least one byte.
        let ptr = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        // SAFETY: both have that many bytes, and the new ones are owned here alone, so the ranges do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), ptr.as_ptr(), bytes.len()) };
        Some(HostBytes { ptr, len: bytes.len(), read_only })
    }
}

fn layout(len: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(len, PAGE).ok().filter(|layout| layout.size() > 0)
}

// SAFETY: the memory is this object's until it is dropped, stays where it is, and nothing here touches it.
unsafe impl HostMemory for HostBytes {
    fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: allocated with this layout, freed once.
            unsafe { std::alloc::dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}
