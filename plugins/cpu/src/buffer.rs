//! Memory of the host: allocated here on a cache line, or borrowed (a mapped file, read-only).

use llmrt_plugin::{Buffer, Error, Result, TensorView};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of what is allocated here.
pub const ALIGNMENT: usize = 64;

/// A range of host memory.
pub struct HostBuffer {
    ptr: NonNull<u8>,
    len: usize,
    /// How to free it, if it is ours.
    layout: Option<Layout>,
    read_only: bool,
}

// SAFETY: the memory belongs to the buffer or is kept by the host; access to ranges is ordered by the host.
unsafe impl Send for HostBuffer {}
// SAFETY: as above.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Zeroed memory.
    pub fn alloc(size: u64) -> Result<HostBuffer> {
        let layout =
            usize::try_from(size).ok().and_then(|n| Layout::from_size_align(n.max(1), ALIGNMENT).ok());
        let layout = layout.ok_or_else(|| Error::oom_host(size))?;
        // SAFETY: the layout has at least one byte.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or_else(|| Error::oom_host(size))?;
        Ok(HostBuffer { ptr, len: size as usize, layout: Some(layout), read_only: false })
    }

    /// Memory of someone else.
    ///
    /// # Safety
    /// `n` bytes at `ptr` stay readable, and writable unless `read_only`, as long as the buffer lives.
    pub unsafe fn import(ptr: *mut u8, n: usize, read_only: bool) -> HostBuffer {
        let (ptr, len) = NonNull::new(ptr).map_or((NonNull::dangling(), 0), |ptr| (ptr, n));
        HostBuffer { ptr, len, layout: None, read_only }
    }

    /// The first byte, to read from.
    pub fn address(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Whether nothing may be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The address of a range of the buffer.
    fn range(&self, start: u64, n: u64) -> Result<*mut u8> {
        match start.checked_add(n) {
            Some(end) if end <= self.len as u64 => Ok(self.ptr.as_ptr().wrapping_add(start as usize)),
            _ => Err(Error::invalid(format!("bytes {start}+{n} of a buffer of {}", self.len))),
        }
    }

    fn writable(&self, start: u64, n: u64) -> Result<*mut u8> {
        match self.read_only {
            true => Err(Error::invalid("the buffer was imported read-only")),
            false => self.range(start, n),
        }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated with this layout in `alloc`, freed once.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}

impl Buffer for HostBuffer {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        let to = self.writable(tensor.offset().saturating_add(off), src.len() as u64)?;
        // SAFETY: `writable` checked the range; the host lets nobody else touch it during the call.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), to, src.len()) };
        Ok(())
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let from = self.range(tensor.offset().saturating_add(off), dst.len() as u64)?;
        // SAFETY: `range` checked it; the host lets nobody write to it during the call.
        unsafe { std::ptr::copy_nonoverlapping(from, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        let to = self.writable(off, n)?;
        // SAFETY: `writable` checked the range; the host lets nobody else touch it during the call.
        unsafe { std::ptr::write_bytes(to, byte, n as usize) };
        Ok(())
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        let n = src.nbytes();
        if dst.nbytes() != n || dst.ne() != src.ne() || dst.nb() != src.nb() {
            return Err(Error::unsupported("only tensors of one layout are copied between buffers"));
        }
        let from = crate::tensor::address(src)
            .ok_or_else(|| Error::unsupported("the source is not in host memory"))?;
        let to = self.writable(dst.offset(), n)?;
        // SAFETY: both ranges hold `n` bytes; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from, to, n as usize) };
        Ok(())
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        (!self.read_only).then_some(self.ptr.as_ptr())
    }
}
