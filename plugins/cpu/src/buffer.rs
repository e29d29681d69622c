//! Memory of the host: allocated here on a cache line, or borrowed (a mapped file, read-only).

use crate::sealed::Seal;
use crate::simd::Isa;
use llmrt_plugin::{Buffer, Error, Layout as Sealed, Result, TensorView};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of what is allocated here.
pub const ALIGNMENT: usize = 64;

/// Bytes from which on memory comes as pages of its own.
const LARGE: u64 = 1 << 20;

/// How memory is freed.
enum Owned {
    Heap(Layout),
    Pages,
}

/// A range of host memory.
pub struct HostBuffer {
    ptr: NonNull<u8>,
    len: usize,
    /// How to free it, if it is ours.
    owned: Option<Owned>,
    read_only: bool,
    /// What matrices are sealed with.
    isa: Isa,
}

// SAFETY: the memory belongs to the buffer or is kept by the host; access to ranges is ordered by the host.
unsafe impl Send for HostBuffer {}
// SAFETY: as above.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Zeroed memory.
    pub fn alloc(size: u64, isa: Isa) -> Result<HostBuffer> {
        if size >= LARGE {
            return HostBuffer::map(size, isa);
        }
        let layout =
            usize::try_from(size).ok().and_then(|n| Layout::from_size_align(n.max(1), ALIGNMENT).ok());
        let layout = layout.ok_or_else(|| Error::oom_host(size))?;
        // SAFETY: the layout has at least one byte.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or_else(|| Error::oom_host(size))?;
        Ok(HostBuffer { ptr, len: size as usize, owned: Some(Owned::Heap(layout)), read_only: false, isa })
    }

    /// As [`HostBuffer::alloc`]: pages that take memory when they are touched, large ones if the system has them.
    fn map(size: u64, isa: Isa) -> Result<HostBuffer> {
        let len = usize::try_from(size).map_err(|_| Error::oom_host(size))?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0)
        };
        let ptr = if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast::<u8>()) };
        let ptr = ptr.ok_or_else(|| Error::oom_host(size))?;
        #[cfg(target_os = "linux")]
        // SAFETY: advice about this mapping changes no byte; refused, its pages are small.
        unsafe {
            libc::madvise(base, len, libc::MADV_HUGEPAGE)
        };
        Ok(HostBuffer { ptr, len, owned: Some(Owned::Pages), read_only: false, isa })
    }

    /// Memory that the caller owns.
    ///
    /// # Safety
    /// `n` bytes at `ptr` stay readable, and writable unless `read_only`, as long as the buffer lives.
    pub unsafe fn import(ptr: *mut u8, n: usize, read_only: bool, isa: Isa) -> HostBuffer {
        let (ptr, len) = NonNull::new(ptr).map_or((NonNull::dangling(), 0), |ptr| (ptr, n));
        HostBuffer { ptr, len, owned: None, read_only, isa }
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

    /// How a tensor is sealed; `None` for one in the file's layout.
    fn seal_of(&self, tensor: &TensorView<'_>) -> Result<Option<Seal>> {
        match (tensor.layout_id(), Seal::of_sealed(tensor)) {
            (0, _) => Ok(None),
            (_, Some(seal)) => Ok(Some(seal)),
            (id, None) => Err(Error::unsupported(format!("a tensor of this shape in layout {id}"))),
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
        match self.owned {
            None => {}
            // SAFETY: allocated with this layout in `alloc`, freed once.
            Some(Owned::Heap(layout)) => unsafe { dealloc(self.ptr.as_ptr(), layout) },
            Some(Owned::Pages) => {
                // SAFETY: mapped with this length in `map`, unmapped once.
                unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
            }
        }
    }
}

impl Buffer for HostBuffer {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        if tensor.layout_id() != 0 {
            return Err(Error::unsupported("a sealed weight is not written any more"));
        }
        let to = self.writable(tensor.offset().saturating_add(off), src.len() as u64)?;
        // SAFETY: `writable` checked the range; the host excludes other access during the call.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), to, src.len()) };
        Ok(())
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        if let Some(seal) = self.seal_of(tensor)? {
            let n = seal.n_bytes() as u64;
            if off.checked_add(dst.len() as u64).is_none_or(|end| end > n) {
                return Err(Error::invalid(format!("bytes {off}+{} of a tensor of {n}", dst.len())));
            }
            let from = self.range(tensor.offset(), n)?;
            // SAFETY: `range` checked it; the host excludes writes during the call.
            let bytes = unsafe { std::slice::from_raw_parts(from, n as usize) };
            seal.read(bytes, off as usize, dst);
            return Ok(());
        }
        let from = self.range(tensor.offset().saturating_add(off), dst.len() as u64)?;
        // SAFETY: `range` checked it; the host excludes writes during the call.
        unsafe { std::ptr::copy_nonoverlapping(from, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        let to = self.writable(off, n)?;
        // SAFETY: `writable` checked the range; the host excludes other access during the call.
        unsafe { std::ptr::write_bytes(to, byte, n as usize) };
        Ok(())
    }

    fn seal(&self, tensor: &TensorView<'_>) -> Result<Sealed> {
        let seal = Seal::of(tensor).filter(|_| !self.read_only);
        let Some(seal) = seal else { return Ok(Sealed::canonical(tensor.nbytes())) };
        let at = self.writable(tensor.offset(), seal.n_bytes() as u64)?;
        // SAFETY: `writable` checked the range; the host excludes other access during the call.
        seal.seal(self.isa, unsafe { std::slice::from_raw_parts_mut(at, seal.n_bytes()) });
        Ok(seal.layout(tensor.nbytes()))
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        let n = src.nbytes();
        if dst.nbytes() != n || (dst.ne(), dst.nb(), dst.layout_id()) != (src.ne(), src.nb(), src.layout_id())
        {
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
