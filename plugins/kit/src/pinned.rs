//! Pinned memory: memory of the host that a device copies from and to without a detour. Where the vendor's runtime gives
//! none it is plain memory, which is slower and otherwise the same.

use crate::{Buffer, Error, Result, TensorView};
use std::alloc::{Layout, alloc, dealloc};

/// Every pinned buffer starts at a multiple of this.
pub const PINNED_ALIGNMENT: u64 = 64;

/// How a plugin takes pinned memory.
pub trait PinnedMemory: Send + Sync + 'static {
    /// `n` bytes at a multiple of [`PINNED_ALIGNMENT`], `n` above 0; `None` if there are none.
    fn alloc(&self, n: usize) -> Option<*mut u8>;

    /// Frees them.
    ///
    /// # Safety
    /// `ptr` came from `alloc` of this value, is freed once, and no work uses it.
    unsafe fn free(&self, ptr: *mut u8);

    /// As [`Buffer::copy_from`].
    fn copy(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()>;
}

/// A buffer of pinned memory, freed with the object.
pub struct PinnedBuffer<P: PinnedMemory> {
    base: *mut u8,
    memory: P,
    /// Of memory of the process; `None`: the vendor's.
    plain: Option<Layout>,
}

// SAFETY: plain bytes; the host orders who writes them.
unsafe impl<P: PinnedMemory> Send for PinnedBuffer<P> {}
// SAFETY: as above.
unsafe impl<P: PinnedMemory> Sync for PinnedBuffer<P> {}

impl<P: PinnedMemory> PinnedBuffer<P> {
    /// `size` bytes. Out of memory, the error has the size.
    pub fn new(memory: P, size: u64) -> Result<PinnedBuffer<P>> {
        let n = usize::try_from(size.max(1)).map_err(|_| Error::oom_host(size))?;
        let align = PINNED_ALIGNMENT as usize;
        let layout = Layout::from_size_align(n, align).map_err(|_| Error::oom_host(size))?;
        if let Some(base) = memory.alloc(n).filter(|base| !base.is_null()) {
            return Ok(PinnedBuffer { base, memory, plain: None });
        }
        // SAFETY: the layout has a size above 0.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            return Err(Error::oom_host(size));
        }
        Ok(PinnedBuffer { base, memory, plain: Some(layout) })
    }

    /// Address of byte `offset`.
    pub fn address(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }
}

impl<P: PinnedMemory> Buffer for PinnedBuffer<P> {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        // SAFETY: the host checked that the range is inside this buffer, and no other call uses it.
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
        self.memory.copy(dst, src)
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        Some(self.base)
    }
}

impl<P: PinnedMemory> Drop for PinnedBuffer<P> {
    fn drop(&mut self) {
        match self.plain {
            // SAFETY: what `alloc` gave with this layout, once.
            Some(layout) => unsafe { dealloc(self.base, layout) },
            // SAFETY: what the plugin gave, once; the host frees a buffer after the work that uses it.
            None => unsafe { self.memory.free(self.base) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Memory that counts what is out; without `room` there is none.
    struct Counted {
        n_out: Arc<AtomicUsize>,
        room: bool,
    }

    impl PinnedMemory for Counted {
        fn alloc(&self, n: usize) -> Option<*mut u8> {
            self.room.then(|| {
                self.n_out.fetch_add(n, Relaxed);
                Box::leak(vec![0u64; 8].into_boxed_slice()).as_mut_ptr().cast()
            })
        }

        unsafe fn free(&self, ptr: *mut u8) {
            // SAFETY: the box of 8 numbers that `alloc` leaked.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(ptr.cast::<u64>(), 8)) });
            self.n_out.store(0, Relaxed);
        }

        fn copy(&self, _dst: &TensorView<'_>, _src: &TensorView<'_>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_vendors_memory_goes_back_to_the_vendor() {
        let n_out = Arc::new(AtomicUsize::new(0));
        let buffer = PinnedBuffer::new(Counted { n_out: n_out.clone(), room: true }, 40).unwrap();
        assert_eq!(n_out.load(Relaxed), 40);
        buffer.fill(8, 4, 7).unwrap();
        // SAFETY: 40 bytes, of which 12 are written or zero.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.host_ptr().unwrap(), 12) };
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7]);
        drop(buffer);
        assert_eq!(n_out.load(Relaxed), 0);
    }

    #[test]
    fn without_it_plain_memory_is_used_and_sizes_that_nothing_has_are_out_of_memory() {
        let memory = || Counted { n_out: Arc::default(), room: false };
        let buffer = PinnedBuffer::new(memory(), 0).unwrap();
        assert_eq!(buffer.address(0) as u64 % PINNED_ALIGNMENT, 0);
        let e = PinnedBuffer::new(memory(), u64::MAX).err().unwrap();
        assert_eq!((e.status, e.bytes), (llmrt_abi::Status::OomHost, Some((u64::MAX, 0))));
    }
}
