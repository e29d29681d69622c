//! Bytes that a stream moves: to a device, back, and between devices, in the order of its work.

use super::stream::{Kept, is_unsupported};
use super::{Buffer, Event, Stream, TensorDesc, call};
use crate::error::{Error, Result};
use crate::validate::live;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// Memory that a device writes asynchronously; read only after the stream is synchronised.
pub(super) struct Target(UnsafeCell<Vec<u8>>);

// SAFETY: the bytes are written by the device until the stream is synchronised and read only by `Stream::take`, which
// synchronises first and consumes the only handle.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// Bytes on their way from a device; [`Stream::take`] waits for them.
pub struct PendingRead(Arc<Target>);

/// Bytes on their way from a device whose stream goes on with other work; [`EarlyRead::wait`] waits for them alone.
pub struct EarlyRead {
    target: Arc<Target>,
    done: Event,
}

impl EarlyRead {
    /// The bytes, once they are there.
    pub fn wait(self) -> Result<Arc<[u8]>> {
        self.done.reached()?;
        // SAFETY: the event was recorded after the read and is reached, so that the device has written the bytes and will not
        // again; nothing else writes them.
        Ok(Arc::from(unsafe { (*self.target.0.get()).as_slice() }))
    }
}

impl Stream {
    /// Reads a tensor in stream order, to be waited for by an event of the device, without what is enqueued later; where the
    /// device has no events, it is waited for now.
    pub fn read_early(&self, done: &Event, buffer: &Buffer, tensor: &TensorDesc<'_>) -> Result<EarlyRead> {
        let n = buffer.place(tensor, 0, 0)?.nbytes;
        let PendingRead(target) = self.get_async(buffer, tensor, 0, n)?;
        self.record(done)?;
        Ok(EarlyRead { target, done: done.clone() })
    }

    /// Writes canonical bytes to a tensor, in stream order.
    pub fn set_async(
        &self,
        buffer: &Buffer,
        tensor: &TensorDesc<'_>,
        src: Arc<[u8]>,
        off: u64,
    ) -> Result<()> {
        let mut state = self.0.enter()?;
        let (n, ptr) = (src.len() as u64, src.as_ptr().cast());
        let t = buffer.place(tensor, off, n)?;
        self.0.check_reachable(buffer)?;
        self.0.device.check_sealed("set_async", &t, live::Use::Write)?;
        // SAFETY: a live backend, entered by this thread; `place` checked the range; source and buffer are kept.
        let result = unsafe { call!(self.0.device, self.0.vt, set_async(self.0.raw, &t, ptr, off, n)) };
        if is_unsupported(&result) {
            self.0.synchronize(&mut state)?;
            return buffer.set(tensor, &src, off);
        }
        self.0.keep(&mut state, Kept::Source(src));
        self.0.keep(&mut state, Kept::Buffer(buffer.clone()));
        state.note(result)
    }

    /// Reads `n` canonical bytes at `off` of a tensor, in stream order.
    pub fn get_async(
        &self,
        buffer: &Buffer,
        tensor: &TensorDesc<'_>,
        off: u64,
        n: u64,
    ) -> Result<PendingRead> {
        let mut state = self.0.enter()?;
        let t = buffer.place(tensor, off, n)?;
        self.0.check_reachable(buffer)?;
        self.0.device.check_sealed("get_async", &t, live::Use::Read)?;
        let mut bytes = vec![0; n as usize];
        let ptr = bytes.as_mut_ptr().cast();
        let target = Arc::new(Target(UnsafeCell::new(bytes)));
        // SAFETY: a live backend, entered by this thread; `place` checked the range; target and buffer are kept.
        let result = unsafe { call!(self.0.device, self.0.vt, get_async(self.0.raw, &t, ptr, off, n)) };
        if is_unsupported(&result) {
            self.0.synchronize(&mut state)?;
            let mut bytes = vec![0; n as usize];
            buffer.get(tensor, &mut bytes, off)?;
            return Ok(PendingRead(Arc::new(Target(UnsafeCell::new(bytes)))));
        }
        self.0.keep(&mut state, Kept::Target(target.clone()));
        self.0.keep(&mut state, Kept::Buffer(buffer.clone()));
        state.note(result)?;
        Ok(PendingRead(target))
    }

    /// The bytes of a read of this stream, after synchronising.
    pub fn take(&self, read: PendingRead) -> Result<Vec<u8>> {
        self.synchronize()?;
        match Arc::try_unwrap(read.0) {
            Ok(target) => Ok(target.0.into_inner()),
            Err(_) => Err(Error::invalid("take", "the read is of another stream, which is not synchronised")),
        }
    }

    /// Copies a tensor from a buffer of `from`'s device, after what `from` has enqueued, before what follows here.
    pub fn copy_async(
        &self,
        from: &Stream,
        dst: (&Buffer, &TensorDesc<'_>),
        src: (&Buffer, &TensorDesc<'_>),
    ) -> Result<()> {
        if Arc::ptr_eq(&self.0.device.plugin, &from.0.device.plugin) && !Arc::ptr_eq(&self.0, &from.0) {
            let result = self.copy_in_plugin(from, dst, src);
            if !is_unsupported(&result) {
                return result;
            }
        }
        from.synchronize()?;
        self.synchronize()?;
        dst.0.copy(dst.1, src.0, src.1)
    }

    fn copy_in_plugin(
        &self,
        from: &Stream,
        dst: (&Buffer, &TensorDesc<'_>),
        src: (&Buffer, &TensorDesc<'_>),
    ) -> Result<()> {
        // Always in the order of addresses, so that two copies crossing each other cannot wait for each other.
        let mine_first = Arc::as_ptr(&self.0) < Arc::as_ptr(&from.0);
        let (mut mine, mut theirs);
        if mine_first {
            mine = self.0.enter()?;
            theirs = from.0.enter()?;
        } else {
            theirs = from.0.enter()?;
            mine = self.0.enter()?;
        }
        let (d, s) = (dst.0.place(dst.1, 0, 0)?, src.0.place(src.1, 0, 0)?);
        if d.nbytes != s.nbytes {
            let problem = format!("{} bytes to copy to a tensor of {}", s.nbytes, d.nbytes);
            return Err(Error::invalid(format!("tensor `{}`", dst.1.name), problem));
        }
        self.0.check_reachable(dst.0)?;
        from.0.check_reachable(src.0)?;
        // SAFETY: two live backends of one plugin, both entered; tensors are checked and their buffers kept.
        let result = unsafe { call!(self.0.device, self.0.vt, copy_async(self.0.raw, from.0.raw, &d, &s)) };
        if !is_unsupported(&result) {
            for (inner, state) in [(&self.0, &mut mine), (&from.0, &mut theirs)] {
                inner.keep(state, Kept::Buffer(dst.0.clone()));
                inner.keep(state, Kept::Buffer(src.0.clone()));
            }
        }
        mine.note(result)
    }
}
