//! Memory of the host on the way to a device and back. It is pinned, so that copies need no detour through the driver's own
//! memory and take their place in a stream's order; from other memory drivers make such copies at once, or refuse them while
//! a stream is captured.

use super::stream::{Kept, is_unsupported};
use super::{Buffer, Device, Stream, TensorDesc, call};
use crate::error::{Error, Result};
use crate::validate::live;
use llmrt_abi::types as c;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Pinned memory of a device.
pub struct Staging {
    buffer: Buffer,
    base: NonNull<u8>,
}

// SAFETY: `base` is memory of `buffer`, which may be used from any thread.
unsafe impl Send for Staging {}
// SAFETY: through a shared object the bytes are only read.
unsafe impl Sync for Staging {}

impl Device {
    /// The buffer type of pinned memory that the CPU reaches, of a device whose own memory it does not reach.
    pub(crate) fn pinned_type(&self) -> Option<u32> {
        let is_pinned = |flags: u32, kind| kind == c::BUFFER_HOST_PINNED && flags & c::BT_HOST_PTR != 0;
        let types = &self.info().buffer_types;
        let found = types.iter().position(|bt| is_pinned(bt.flags, bt.kind))?;
        self.has_own_memory().then_some(found as u32)
    }
}

impl Staging {
    /// `size` bytes, all 0; `None` where a device offers no such memory.
    pub fn new(device: &Arc<Device>, size: u64) -> Result<Option<Staging>> {
        let Some(bt) = device.pinned_type() else { return Ok(None) };
        let buffer = device.alloc(bt, size, c::USAGE_ANY)?;
        buffer.fill(0, buffer.size(), 0)?;
        Ok(buffer.host_ptr().map(|base| Staging { buffer, base }))
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// The bytes; an error while a stream may still copy some of them.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        if !self.buffer.is_unshared() {
            return Err(Error::invalid("staging memory", "is still in use by a stream"));
        }
        // SAFETY: so many initialised bytes of a live buffer. Streams that copy them hold the buffer, and none does.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.size() as usize) })
    }

    /// Some of the bytes, which no stream writes.
    pub(crate) fn part(&self, range: Range<u64>) -> Result<&[u8]> {
        // SAFETY: as in `bytes`; streams read the bytes and none writes them.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.size() as usize) };
        bytes
            .get(range.start as usize..range.end as usize)
            .ok_or_else(|| Error::invalid("staging memory", format!("bytes {range:?} of {}", self.size())))
    }
}

impl Stream {
    /// Writes a part of the staging memory of its device to byte `at` of a buffer, in stream order. The staging memory
    /// may be written again when the stream was synchronised.
    pub fn set_staged(&self, buffer: &Buffer, at: u64, staging: &Staging, part: Range<u64>) -> Result<()> {
        let bytes = staging.part(part)?;
        let n = bytes.len() as u64;
        let tensor = TensorDesc::bytes(at, n);
        let mut state = self.0.enter()?;
        let t = buffer.place(&tensor, 0, n)?;
        self.0.check_reachable(buffer)?;
        self.0.device.check_sealed("set_async", &t, live::Use::Write)?;
        let ptr = bytes.as_ptr().cast();
        // SAFETY: a live backend, entered by this thread; `place` checked the range; both buffers are kept.
        let result = unsafe { call!(self.0.device, self.0.vt, set_async(self.0.raw, &t, ptr, 0, n)) };
        if is_unsupported(&result) {
            self.0.synchronize(&mut state)?;
            return buffer.write(at, bytes);
        }
        self.0.keep(&mut state, Kept::Buffer(staging.buffer.clone()));
        self.0.keep(&mut state, Kept::Buffer(buffer.clone()));
        state.note(result)
    }
}
