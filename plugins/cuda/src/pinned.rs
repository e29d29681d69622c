//! Memory of the host that a device copies from and to without a detour.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::sys::CU_MEMHOSTALLOC_PORTABLE;
use llmrt_plugin::{PinnedBuffer, PinnedMemory, Result, TensorView};
use std::sync::Arc;

/// Pinned memory, freed with the object.
pub type GpuPinned = PinnedBuffer<Pinned>;

/// The driver's pinned memory, for copies from and to a device.
pub struct Pinned(pub Arc<Gpu>);

impl PinnedMemory for Pinned {
    fn alloc(&self, n: usize) -> Option<*mut u8> {
        self.0.enter().ok()?;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe { cu!(self.0.driver, cuMemHostAlloc(&mut ptr, n, CU_MEMHOSTALLOC_PORTABLE)).ok()? };
        Some(ptr.cast())
    }

    unsafe fn free(&self, ptr: *mut u8) {
        if self.0.enter().is_ok() {
            // SAFETY: the caller's promise: what `cuMemHostAlloc` gave, once. A failure has no reader.
            let _ = unsafe { cu!(self.0.driver, cuMemFreeHost(ptr.cast())) };
        }
    }

    fn copy(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        crate::buffer::copy_blocking(dst, src)
    }
}
