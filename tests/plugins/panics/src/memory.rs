//! Memory of the device: a vector per buffer, counted.

use crate::Where;
use llmrt_plugin::{Buffer, Error, Result, TensorView};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Bytes of the device.
pub const MEMORY: u64 = 1 << 30;

static USED: AtomicU64 = AtomicU64::new(0);

/// Bytes of all buffers.
pub fn in_use() -> u64 {
    USED.load(Ordering::Relaxed).min(MEMORY)
}

/// Bytes of the device.
pub struct Memory(RwLock<Vec<u8>>, Where);

impl Memory {
    /// `size` zero bytes.
    pub fn new(size: u64, at: Where) -> Result<Memory> {
        let free = MEMORY - in_use();
        let mut bytes = Vec::new();
        if size > free || bytes.try_reserve_exact(size as usize).is_err() {
            return Err(Error::oom_device(size, free));
        }
        bytes.resize(size as usize, 0);
        USED.fetch_add(size, Ordering::Relaxed);
        Ok(Memory(RwLock::new(bytes), at))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let n = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).len();
        USED.fetch_sub(n as u64, Ordering::Relaxed);
    }
}

impl Buffer for Memory {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        self.1.am_in("set");
        let at = (tensor.offset() + off) as usize;
        self.0.write().unwrap_or_else(PoisonError::into_inner)[at..at + src.len()].copy_from_slice(src);
        Ok(())
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let at = (tensor.offset() + off) as usize;
        dst.copy_from_slice(&self.0.read().unwrap_or_else(PoisonError::into_inner)[at..at + dst.len()]);
        Ok(())
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        let range = off as usize..(off + n) as usize;
        self.0.write().unwrap_or_else(PoisonError::into_inner)[range].fill(byte);
        Ok(())
    }
}

/// The values of a contiguous F32 tensor.
pub fn floats(t: TensorView<'_>) -> Vec<f32> {
    let Some(buffer) = t.buffer::<Memory>() else { return Vec::new() };
    let bytes = buffer.0.read().unwrap_or_else(PoisonError::into_inner);
    let bytes = &bytes[t.offset() as usize..][..t.nbytes() as usize];
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Writes the values of a contiguous F32 tensor.
pub fn set_floats(t: TensorView<'_>, values: impl Iterator<Item = f32>) {
    let Some(buffer) = t.buffer::<Memory>() else { return };
    let mut bytes = buffer.0.write().unwrap_or_else(PoisonError::into_inner);
    let at = t.offset() as usize;
    for (place, value) in bytes[at..at + t.nbytes() as usize].chunks_exact_mut(4).zip(values) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}
