//! Memory of a simulated device: each buffer is one piece of memory mapped twice, without any rights at the address
//! that the host may learn, and readable and writable at an alias that only the device's own work uses.
//!
//! It begins as 0xFF bytes, which are NaN in every float type and -1 in every integer type, and becomes that again when
//! it is freed while work on it is still queued.

use crate::device::{Meter, Taken};
use crate::mapping::Mapping;
use llmrt_cpu::buffer::HostBuffer;
use llmrt_cpu::simd::Isa;
use llmrt_plugin::{Buffer, Error, OwnBuffer, Result, TensorView};
use std::sync::Arc;

/// The value of bytes that were never written.
pub const POISON: u8 = 0xff;

/// A buffer in the hands of the host.
pub struct SimBuffer {
    memory: Arc<Memory>,
    _taken: Taken,
    meter: Arc<Meter>,
    /// Number of its device.
    pub device: usize,
}

/// Bytes of a device.
pub struct Memory {
    /// The alias as kernels see it; gone before the mapping is.
    kernels: Arc<OwnBuffer>,
    mapping: Mapping,
    /// Requested bytes.
    len: usize,
}

impl Memory {
    /// `size` poisoned bytes.
    pub fn new(size: u64) -> Result<Memory> {
        let len = usize::try_from(size).map_err(|_| Error::oom_host(size))?;
        let mapped = len.max(1).checked_next_multiple_of(Mapping::page());
        let mapping = mapped.and_then(Mapping::new).ok_or_else(|| Error::oom_host(size))?;
        let memory = Memory::of(mapping, len);
        memory.fill(0, size, POISON)?;
        Ok(memory)
    }

    /// Addresses for `size` bytes, whole units, from a multiple of `unit` on; [`Memory::map`] backs them with memory.
    pub fn reserve(size: u64, unit: u64) -> Result<Memory> {
        let sizes = usize::try_from(size).ok().zip(usize::try_from(unit).ok());
        let mapping = sizes.and_then(|(len, unit)| Some((Mapping::reserve(len, unit)?, len)));
        let (mapping, len) = mapping.ok_or_else(|| Error::oom_host(size))?;
        Ok(Memory::of(mapping, len))
    }

    fn of(mapping: Mapping, len: usize) -> Memory {
        // SAFETY: the addresses stay ours while `Memory` lives, and tasks keep it as long as they use its buffer; what
        // is not backed by memory is not used, which is the host's promise.
        let kernels = unsafe { HostBuffer::import(mapping.alias(), len, false, Isa::best()) };
        let kernels = Arc::new(OwnBuffer::new(Box::new(kernels)));
        Memory { kernels, mapping, len }
    }

    /// Backs reserved bytes with poisoned memory.
    pub fn map(&self, at: u64, n: u64) -> Result<()> {
        self.range(at, n)?;
        if !self.mapping.map(at as usize, n as usize) {
            return Err(Error::oom_host(n));
        }
        self.fill(at, n, POISON)
    }

    /// Removes the memory that backs reserved bytes.
    pub fn unmap(&self, at: u64, n: u64) {
        if self.range(at, n).is_ok() {
            self.mapping.unmap(at as usize, n as usize);
        }
    }

    /// The memory as a buffer of the CPU plugin's kernels.
    pub fn kernels(&self) -> &Arc<OwnBuffer> {
        &self.kernels
    }

    /// Requested bytes.
    pub fn size(&self) -> u64 {
        self.len as u64
    }

    /// The address outside of the device. Nothing can be read or written there.
    pub fn address(&self) -> *const u8 {
        self.mapping.address()
    }

    /// The address of bytes for the device's own use.
    fn range(&self, start: u64, n: u64) -> Result<*mut u8> {
        match start.checked_add(n) {
            Some(end) if end <= self.len as u64 => Ok(self.mapping.alias().wrapping_add(start as usize)),
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

    /// Sets bytes.
    pub fn fill(&self, at: u64, n: u64, byte: u8) -> Result<()> {
        let to = self.range(at, n)?;
        // SAFETY: `range` checked the target.
        unsafe { std::ptr::write_bytes(to, byte, n as usize) };
        Ok(())
    }
}

impl SimBuffer {
    /// A buffer of these bytes of the device with this number.
    pub fn new(taken: Taken, device: usize, meter: Arc<Meter>) -> Result<SimBuffer> {
        let size = taken.n_bytes();
        Ok(SimBuffer { memory: Arc::new(Memory::new(size)?), _taken: taken, meter, device })
    }

    /// The memory, for tasks to keep.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl Drop for SimBuffer {
    fn drop(&mut self) {
        if Arc::strong_count(&self.memory) > 1 {
            // Freed while work on it is queued: that work reads poison.
            let _ = self.memory.fill(0, self.memory.size(), POISON);
        }
    }
}

/// These happen at once, whatever is queued.
impl Buffer for SimBuffer {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        self.meter.pause(src.len() as u64, None);
        // SAFETY: a slice is readable.
        unsafe { self.memory.write(tensor.offset().saturating_add(off), src.as_ptr(), src.len() as u64) }
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        self.meter.pause(dst.len() as u64, None);
        // SAFETY: a slice is writable.
        unsafe { self.memory.read(tensor.offset().saturating_add(off), dst.as_mut_ptr(), dst.len() as u64) }
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        self.meter.pause(0, None);
        self.memory.fill(off, n, byte)
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        let from = src.buffer::<SimBuffer>().ok_or_else(|| Error::unsupported("the source is not ours"))?;
        if from.device != self.device && !self.meter.p2p() {
            return Err(Error::unsupported("these devices cannot reach each other"));
        }
        self.meter.pause(src.nbytes(), None);
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
}
