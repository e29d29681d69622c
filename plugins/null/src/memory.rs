//! Device memory; here a vector that only this plugin can see.

use llmrt_plugin::{Buffer, Error, Result, TensorView};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Bytes of the device. The host checked every range against `size`.
pub struct Memory(RwLock<Vec<u8>>);

impl Memory {
    /// `size` zero bytes.
    pub fn new(size: u64) -> Result<Memory> {
        let mut bytes = Vec::new();
        let n = usize::try_from(size).map_err(|_| Error::oom_device(size, super::MEMORY))?;
        // Running out of memory is an answer, never an abort.
        let free = super::MEMORY - in_use();
        if size > free {
            return Err(Error::oom_device(size, free));
        }
        bytes.try_reserve_exact(n).map_err(|_| Error::oom_device(size, super::MEMORY))?;
        bytes.resize(n, 0);
        USED.fetch_add(size, Ordering::Relaxed);
        Ok(Memory(RwLock::new(bytes)))
    }
}

/// Bytes of all buffers: a real driver queries the vendor's library for the free bytes.
static USED: AtomicU64 = AtomicU64::new(0);

/// Bytes of all buffers, as far as the device has them.
pub fn in_use() -> u64 {
    USED.load(Ordering::Relaxed).min(super::MEMORY)
}

impl Drop for Memory {
    fn drop(&mut self) {
        let n = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).len();
        USED.fetch_sub(n as u64, Ordering::Relaxed);
    }
}

impl Buffer for Memory {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = (tensor.offset() + off) as usize;
        bytes[at..at + src.len()].copy_from_slice(src);
        Ok(())
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let at = (tensor.offset() + off) as usize;
        dst.copy_from_slice(&bytes[at..at + dst.len()]);
        Ok(())
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        bytes[off as usize..(off + n) as usize].fill(byte);
        Ok(())
    }
}
