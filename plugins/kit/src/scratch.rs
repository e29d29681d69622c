//! Scratch memory: what a plugin offers so that the host can manage it, and what a stream gets in return.

use crate::{Error, Result};
use llmrt_abi::{Status, types as c};

/// Units and limits of a plugin's virtual memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevmemLimits {
    /// Bytes of a mapping unit, a power of two; 0: only [`ScratchMemory::raw_alloc`] and `raw_free` work.
    pub granularity: u64,
    /// Largest number of addresses; 0: unknown.
    pub va_limit: u64,
}

/// How scratch memory of a device is taken. Addresses and handles are the plugin's own numbers.
pub trait ScratchMemory {
    /// Plain memory; its address.
    fn raw_alloc(&self, size: u64) -> Result<u64>;

    /// Frees it, after the work enqueued so far.
    fn raw_free(&self, addr: u64);

    /// Reserves addresses.
    fn va_reserve(&self, _size: u64) -> Result<u64> {
        Err(Error::unsupported("this device has no virtual memory"))
    }

    /// Maps memory to `n` reserved addresses, whole units; returns a handle of it.
    fn va_map(&self, _addr: u64, _n: u64) -> Result<u64> {
        Err(Error::unsupported("this device has no virtual memory"))
    }

    /// Takes it away, after the work enqueued so far.
    fn va_unmap(&self, _addr: u64, _n: u64, _chunk: u64) {}

    /// Gives addresses back.
    fn va_release(&self, _addr: u64, _size: u64) {}
}

/// A stream's scratch memory, for use inside `compute` and `plan_*`, in stream order: what is freed may be handed out
/// at once. Copy it into the stream; it ends with it.
#[derive(Clone, Copy, Debug)]
pub struct Scratch(*const c::Pool);

// SAFETY: the ABI lets the pool be used from whichever thread is inside the stream, one at a time.
unsafe impl Send for Scratch {}

/// A piece of scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its address on the device.
    pub addr: u64,
    /// Its size, at least the requested one.
    pub size: u64,
}

impl Scratch {
    /// # Safety
    /// `raw` is NULL or the host's pool, valid as long as the stream.
    pub(crate) unsafe fn new(raw: *const c::Pool) -> Option<Scratch> {
        // SAFETY: the caller's promise.
        let is_whole = !raw.is_null() && unsafe { (*raw).struct_size as usize >= size_of::<c::Pool>() };
        is_whole.then_some(Scratch(raw))
    }

    /// Whether pieces must be freed in the reverse order of their allocation.
    pub fn is_stack(&self) -> bool {
        // SAFETY: see `new`.
        unsafe { (*self.0).kind == 1 }
    }

    /// `size` bytes at a multiple of `align`.
    pub fn alloc(&mut self, size: u64, align: u64) -> Result<Piece> {
        let mut piece = Piece { addr: 0, size: 0 };
        // SAFETY: see `new`; the outputs are ours.
        let status = unsafe {
            let pool = &*self.0;
            let alloc = pool.alloc.ok_or_else(|| Error::internal("the host's pool has no `alloc`"))?;
            alloc(pool.ctx, size, align, &mut piece.addr, &mut piece.size)
        };
        match Status::from_code(status) {
            Status::Ok => Ok(piece),
            Status::OomDevice => Err(Error::oom_device(size, 0)),
            other => Err(Error::new(other, format!("scratch memory: {size} bytes by {align}"))),
        }
    }

    /// Gives a piece back.
    pub fn free(&mut self, piece: Piece) {
        // SAFETY: see `new`.
        unsafe {
            let pool = &*self.0;
            if let Some(free) = pool.free {
                free(pool.ctx, piece.addr, piece.size);
            }
        }
    }
}
