//! Memory of the host that the card copies from and to without a detour.

use crate::runtime::{Runtime, acl};
use llmrt_plugin::{PinnedBuffer, PinnedMemory, Result, TensorView};
use std::sync::Arc;

/// Pinned memory, freed with the object.
pub type CardPinned = PinnedBuffer<Pinned>;

/// The runtime's pinned memory, for copies from and to a card.
pub struct Pinned {
    /// The libraries.
    pub runtime: Arc<Runtime>,
    /// The card.
    pub device: i32,
}

impl PinnedMemory for Pinned {
    fn alloc(&self, n: usize) -> Option<*mut u8> {
        self.runtime.enter(self.device).ok()?;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe { acl!(self.runtime, aclrtMallocHost(&mut ptr, n)).ok()? };
        Some(ptr.cast())
    }

    unsafe fn free(&self, ptr: *mut u8) {
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: the caller's promise: what `aclrtMallocHost` gave, once. A failure has no reader.
            let _ = unsafe { acl!(self.runtime, aclrtFreeHost(ptr.cast())) };
        }
    }

    fn copy(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        crate::buffer::copy_blocking(dst, src)
    }
}
