//! Memory of the host that a device copies from and to without a detour. Where the driver gives none it is plain memory,
//! which is slower and otherwise the same.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::sys::CU_MEMHOSTALLOC_PORTABLE;
use llmrt_plugin::{Buffer, Error, Result, TensorView};
use std::alloc::{Layout, alloc, dealloc};
use std::sync::Arc;

/// Every buffer starts at a multiple of this.
pub const ALIGNMENT: u64 = 64;

/// Memory of the host, freed with the object.
pub struct PinnedMemory {
    base: *mut u8,
    from: From,
}

/// Who gave the memory.
enum From {
    Driver(Arc<Gpu>),
    Process(Layout),
}

// SAFETY: plain bytes; the host orders who writes them.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// `size` bytes for copies from and to a device. Out of memory of the host, it says how much was asked for.
    pub fn new(gpu: &Arc<Gpu>, size: u64) -> Result<PinnedMemory> {
        gpu.enter()?;
        let n = usize::try_from(size.max(1)).map_err(|_| Error::oom_host(size))?;
        let layout = Layout::from_size_align(n, ALIGNMENT as usize).map_err(|_| Error::oom_host(size))?;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the output is ours.
        let pinned = unsafe { cu!(gpu.driver, cuMemHostAlloc(&mut ptr, n, CU_MEMHOSTALLOC_PORTABLE)) };
        if pinned.is_ok() && !ptr.is_null() {
            let from = From::Driver(gpu.clone());
            return Ok(PinnedMemory { base: ptr.cast(), from });
        }
        // SAFETY: the layout has a size above 0.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            return Err(Error::oom_host(size));
        }
        Ok(PinnedMemory { base, from: From::Process(layout) })
    }

    /// Address of byte `offset`.
    pub fn address(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }
}

impl Buffer for PinnedMemory {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        // SAFETY: the host checked that the range lies in this buffer, and nobody else uses it.
        unsafe { self.address(tensor.offset() + off).copy_from(src.as_ptr(), src.len()) };
        Ok(())
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        // SAFETY: as in `set`.
        unsafe { self.address(tensor.offset() + off).copy_to(dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        // SAFETY: as in `set`.
        unsafe { self.address(off).write_bytes(byte, n as usize) };
        Ok(())
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        crate::buffer::copy_blocking(dst, src)
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        Some(self.base)
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        match &self.from {
            // SAFETY: what `cuMemHostAlloc` gave, once; the host frees a buffer after the work that uses it.
            From::Driver(gpu) => unsafe {
                if gpu.enter().is_ok() {
                    let _ = cu!(gpu.driver, cuMemFreeHost(self.base.cast()));
                }
            },
            // SAFETY: what `alloc` gave with this layout, once.
            From::Process(layout) => unsafe { dealloc(self.base, *layout) },
        }
    }
}
