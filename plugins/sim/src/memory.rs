//! Memory of a simulated device: each buffer is one piece of memory mapped twice, without any rights at the address
//! that the host may learn, and readable and writable at an alias that only the device's own work uses.
//!
//! It begins as 0xFF bytes, which are NaN in every float type and -1 in every integer type, and becomes that again when
//! it is freed while work on it is still queued.

use crate::device::Meter;
use llmrt_cpu::buffer::HostBuffer;
use llmrt_plugin::{Buffer, Error, OwnBuffer, Result, TensorView};
use std::ptr::NonNull;
use std::sync::Arc;

/// The byte that nobody wrote.
pub const POISON: u8 = 0xff;

/// A buffer in the hands of the host.
pub struct SimBuffer {
    memory: Arc<Memory>,
    meter: Arc<Meter>,
    /// Number of its device.
    pub device: usize,
}

/// Two mappings of one piece of memory.
pub struct Memory {
    /// The alias as kernels see it; gone before the mappings are.
    kernels: Arc<OwnBuffer>,
    /// What the host may learn: touching it faults.
    address: NonNull<u8>,
    /// What the device works on.
    alias: NonNull<u8>,
    /// Bytes asked for.
    len: usize,
    /// Bytes mapped.
    mapped: usize,
}

// SAFETY: the pointers are addresses of mappings that live as long as the struct; who uses which bytes when is settled
// by the host, as with any device memory.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `size` poisoned bytes.
    pub fn new(size: u64) -> Result<Memory> {
        let len = usize::try_from(size).map_err(|_| Error::oom_host(size))?;
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let mapped = len.max(1).checked_next_multiple_of(page).ok_or_else(|| Error::oom_host(size))?;
        let (address, alias) = map_twice(mapped).ok_or_else(|| Error::oom_host(size))?;
        // SAFETY: the alias was just mapped with this many bytes.
        unsafe { std::ptr::write_bytes(alias.as_ptr(), POISON, mapped) };
        // SAFETY: the memory stays mapped while `Memory` lives; tasks keep it as long as they use its buffer.
        let kernels = unsafe { HostBuffer::import(alias.as_ptr(), len, false) };
        let kernels = Arc::new(OwnBuffer::new(Box::new(kernels)));
        Ok(Memory { kernels, address, alias, len, mapped })
    }

    /// The memory as kernels of the CPU plugin know it.
    pub fn kernels(&self) -> &Arc<OwnBuffer> {
        &self.kernels
    }

    /// The address outside of the device. Nobody can read or write there.
    pub fn address(&self) -> *const u8 {
        self.address.as_ptr()
    }

    /// The address of bytes for the device's own use.
    fn range(&self, start: u64, n: u64) -> Result<*mut u8> {
        match start.checked_add(n) {
            Some(end) if end <= self.len as u64 => Ok(self.alias.as_ptr().wrapping_add(start as usize)),
            _ => Err(Error::invalid(format!("bytes {start}+{n} of a buffer of {}", self.len))),
        }
    }

    /// Copies bytes of the host here.
    ///
    /// # Safety
    /// `n` bytes at `src` are readable.
    pub unsafe fn write(&self, at: u64, src: *const u8, n: u64) -> Result<()> {
        let to = self.range(at, n)?;
        // SAFETY: the caller's promise, and `range` checked the target.
        unsafe { std::ptr::copy(src, to, n as usize) };
        Ok(())
    }

    /// Copies bytes from here to the host.
    ///
    /// # Safety
    /// `n` bytes at `dst` are writable.
    pub unsafe fn read(&self, at: u64, dst: *mut u8, n: u64) -> Result<()> {
        let from = self.range(at, n)?;
        // SAFETY: the caller's promise, and `range` checked the source.
        unsafe { std::ptr::copy(from, dst, n as usize) };
        Ok(())
    }

    /// Copies bytes of other device memory here.
    pub fn copy(&self, at: u64, src: &Memory, from: u64, n: u64) -> Result<()> {
        let from = src.range(from, n)?;
        // SAFETY: `range` checked the source.
        unsafe { self.write(at, from, n) }
    }

    fn fill(&self, at: u64, n: u64, byte: u8) -> Result<()> {
        let to = self.range(at, n)?;
        // SAFETY: `range` checked the target.
        unsafe { std::ptr::write_bytes(to, byte, n as usize) };
        Ok(())
    }
}

/// Address without rights, and alias.
fn map_twice(n: usize) -> Option<(NonNull<u8>, NonNull<u8>)> {
    // SAFETY: a NUL-terminated name.
    let fd = unsafe { libc::memfd_create(c"llmrt-sim".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    let map = |rights: i32| -> Option<NonNull<u8>> {
        // SAFETY: a new mapping of a file of this size, at an address of the system's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), n, rights, libc::MAP_SHARED, fd, 0) };
        (at != libc::MAP_FAILED).then(|| NonNull::new(at.cast())).flatten()
    };
    // SAFETY: our own descriptor.
    let sized = unsafe { libc::ftruncate(fd, i64::try_from(n).unwrap_or(i64::MAX)) } == 0;
    let both = sized.then(|| {
        let address = map(libc::PROT_NONE)?;
        match map(libc::PROT_READ | libc::PROT_WRITE) {
            Some(alias) => Some((address, alias)),
            None => {
                unmap(address, n);
                None
            }
        }
    });
    // SAFETY: our own descriptor, closed once; mappings outlive it.
    unsafe { libc::close(fd) };
    both.flatten()
}

fn unmap(at: NonNull<u8>, n: usize) {
    // SAFETY: a mapping of this module that nobody uses any more.
    unsafe { libc::munmap(at.as_ptr().cast(), n) };
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.address, self.mapped);
        unmap(self.alias, self.mapped);
    }
}

impl SimBuffer {
    /// A buffer of a device with this number, whose bytes `meter` counts.
    pub fn new(size: u64, device: usize, meter: Arc<Meter>) -> Result<SimBuffer> {
        meter.take(size)?;
        let memory = Memory::new(size).inspect_err(|_| meter.give_back(size))?;
        Ok(SimBuffer { memory: Arc::new(memory), meter, device })
    }

    /// The memory, for tasks to keep.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl Drop for SimBuffer {
    fn drop(&mut self) {
        if Arc::strong_count(&self.memory) > 1 {
            // Freed while work on it is queued: that work shall not get away with it.
            let _ = self.memory.fill(0, self.memory.len as u64, POISON);
        }
        self.meter.give_back(self.memory.len as u64);
    }
}

/// These happen at once, whatever is queued.
impl Buffer for SimBuffer {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        self.meter.pause(src.len() as u64);
        // SAFETY: a slice is readable.
        unsafe { self.memory.write(tensor.offset().saturating_add(off), src.as_ptr(), src.len() as u64) }
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        self.meter.pause(dst.len() as u64);
        // SAFETY: a slice is writable.
        unsafe { self.memory.read(tensor.offset().saturating_add(off), dst.as_mut_ptr(), dst.len() as u64) }
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        self.meter.pause(0);
        self.memory.fill(off, n, byte)
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        let from = src.buffer::<SimBuffer>().ok_or_else(|| Error::unsupported("the source is not ours"))?;
        if from.device != self.device && !self.meter.p2p() {
            return Err(Error::unsupported("these devices cannot reach each other"));
        }
        self.meter.pause(src.nbytes());
        self.memory.copy(dst.offset(), &from.memory, src.offset(), src.nbytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_poisoned_and_keeps_what_is_written() {
        let memory = Memory::new(5000).unwrap();
        let mut bytes = [0; 4];
        // SAFETY: slices of these sizes.
        unsafe {
            memory.write(4996, [1, 2].as_ptr(), 2).unwrap();
            memory.read(4996, bytes.as_mut_ptr(), 4).unwrap();
            assert!(memory.read(4997, bytes.as_mut_ptr(), 4).is_err());
        }
        assert_eq!(bytes, [1, 2, POISON, POISON]);
    }

    #[test]
    fn the_host_has_no_rights_at_the_address_it_may_learn() {
        let memory = Memory::new(4096).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let rights = |address: *const u8| {
            let line = maps.lines().find(|l| l.starts_with(&format!("{:x}-", address as usize)));
            line.unwrap().split_whitespace().nth(1).unwrap().to_string()
        };
        assert_eq!((rights(memory.address()), rights(memory.alias.as_ptr())), ("---s".into(), "rw-s".into()));
    }
}
