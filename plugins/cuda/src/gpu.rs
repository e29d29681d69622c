//! A device's primary context, and memory in it. The context is made current on every entry: nothing is kept in a thread.

use crate::cublas::{Cublas, CublasLibrary};
use crate::driver::{CudaDriver, Identity, cu};
use crate::live::LiveStreams;
use crate::peers::Peers;
use crate::sys::*;
use llmrt_plugin::{Error, Result, Status};
use parking_lot::RwLock;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A device and its primary context, which other libraries of the process share.
pub struct Gpu {
    /// The driver.
    pub driver: Arc<CudaDriver>,
    /// Its number among the visible ones.
    pub number: i32,
    /// The driver's handle.
    pub device: CUdevice,
    /// Who it is.
    pub identity: Identity,
    /// Streams on it.
    pub streams: LiveStreams,
    /// Devices whose memory it reaches.
    pub peers: Peers,
    /// The vendor's products.
    pub cublas: Cublas,
    /// BF16 numbers that a number of x becomes where many are multiplied by BF16 weights.
    pub bf16_parts: usize,
    /// How often it was opened.
    pub n_opened: AtomicU32,
    context: RwLock<Option<Context>>,
}

#[derive(Clone, Copy)]
struct Context(CUcontext);

// SAFETY: a handle that every thread may make its own.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Gpu {
    /// A visible device. Nothing is created on it yet.
    pub fn new(
        driver: &Arc<CudaDriver>,
        number: i32,
        cublas: &Arc<CublasLibrary>,
        bf16_parts: usize,
    ) -> Result<Gpu> {
        let device = driver.device(number)?;
        let identity = driver.identity(device)?;
        Ok(Gpu {
            driver: driver.clone(),
            number,
            device,
            identity,
            streams: LiveStreams::default(),
            peers: Peers::default(),
            cublas: Cublas::new(cublas),
            bf16_parts,
            n_opened: AtomicU32::new(0),
            context: RwLock::default(),
        })
    }

    /// Takes the primary context, once until [`Gpu::close`].
    pub fn open(&self) -> Result<()> {
        let mut slot = self.context.write();
        if slot.is_none() {
            let mut context = std::ptr::null_mut();
            // SAFETY: a device of the driver; the output is ours.
            unsafe { cu!(self.driver, cuDevicePrimaryCtxRetain(&mut context, self.device))? };
            *slot = Some(Context(context));
            self.peers.forget();
            self.n_opened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives the context back. What was made in it is gone, unless another library of the process holds it too.
    pub fn close(&self) {
        if self.context.write().take().is_some() {
            // SAFETY: retained once by `open`. A failure has no reader.
            let _ = unsafe { cu!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device)) };
        }
    }

    /// The context of an open device.
    pub fn context(&self) -> Result<CUcontext> {
        let context = *self.context.read();
        let closed = || Error::invalid(format!("device {} is not open", self.number));
        context.map(|context| context.0).ok_or_else(closed)
    }

    /// Makes the context the calling thread's.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: a context that lives as long as the device is open.
        unsafe { cu!(self.driver, cuCtxSetCurrent(self.context()?)) }
    }

    /// Free and total bytes of the entered device.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the outputs are ours.
        unsafe { cu!(self.driver, cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok((free as u64, total as u64))
    }

    /// Memory of the entered device; what is in it is unspecified. Out of memory, the error has the bytes requested and
    /// available.
    pub fn alloc(&self, size: u64) -> Result<CUdeviceptr> {
        let mut ptr = 0;
        // SAFETY: the output is ours.
        let result = unsafe { cu!(self.driver, cuMemAlloc_v2(&mut ptr, size.max(1) as usize)) };
        result.map(|()| ptr).map_err(|e| self.with_bytes(e, size))
    }

    /// Adds to an out-of-memory error the bytes requested and available.
    pub fn with_bytes(&self, e: Error, size: u64) -> Error {
        match e.status {
            Status::OomDevice => Error { bytes: Some((size, self.memory().map_or(0, |m| m.0))), ..e },
            _ => e,
        }
    }

    /// Frees it, after the work that is enqueued.
    ///
    /// # Safety
    /// `ptr` came from [`Gpu::alloc`], and is freed once.
    pub unsafe fn free(&self, ptr: CUdeviceptr) {
        // SAFETY: the caller's promise. A failure has no reader.
        let _ = unsafe { cu!(self.driver, cuMemFree_v2(ptr)) };
    }

    /// Copies to the entered device; not ordered after any stream.
    ///
    /// # Safety
    /// `dst` has `src.len()` bytes on the device that no running work uses.
    pub unsafe fn upload(&self, dst: CUdeviceptr, src: &[u8]) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise; `src` has as many bytes. The call may return when the bytes are on their way only,
        // and our streams do not wait for it.
        unsafe {
            cu!(self.driver, cuMemcpyHtoD_v2(dst, src.as_ptr().cast(), src.len()))?;
            cu!(self.driver, cuStreamSynchronize(std::ptr::null_mut()))
        }
    }

    /// Copies from the entered device; not ordered after any stream.
    ///
    /// # Safety
    /// `src` has `dst.len()` bytes on the device that no running work writes.
    pub unsafe fn download(&self, dst: &mut [u8], src: CUdeviceptr) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise; `dst` has as many bytes.
        unsafe { cu!(self.driver, cuMemcpyDtoH_v2(dst.as_mut_ptr().cast::<c_void>(), src, dst.len())) }
    }
}
