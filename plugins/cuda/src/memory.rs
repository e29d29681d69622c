//! How the host takes scratch memory of a device: plain, or addresses with memory put behind them.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::sys::*;
use llmrt_plugin::{DevmemLimits, Error, Result, ScratchMemory};
use std::sync::Arc;

/// Pages are 2 MiB, and one reservation has at most as many addresses as the largest device has memory.
pub const LIMITS: DevmemLimits = DevmemLimits { granularity: 2 << 20, va_limit: 256 << 30 };

/// Scratch memory of one device.
pub struct GpuScratch(pub Arc<Gpu>);

impl GpuScratch {
    fn location(&self) -> CUmemLocation {
        CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: self.0.device }
    }

    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types: 0,
            location: self.location(),
            win32: std::ptr::null_mut(),
            flags: [0; 8],
        }
    }

    /// Nothing goes while work may use it. A failed wait says that the device is lost, and then nothing works on it.
    fn wait(&self) {
        if self.0.enter().is_ok() {
            // SAFETY: no arguments.
            let _ = unsafe { cu!(self.0.driver, cuCtxSynchronize()) };
        }
    }
}

impl ScratchMemory for GpuScratch {
    fn raw_alloc(&self, size: u64) -> Result<u64> {
        self.0.enter()?;
        self.0.alloc(size)
    }

    fn raw_free(&self, addr: u64) {
        self.wait();
        // SAFETY: the host frees what `raw_alloc` gave, once; all work is done.
        unsafe { self.0.free(addr) }
    }

    /// Refused where the device cannot: the host then takes plain memory.
    fn va_reserve(&self, size: u64) -> Result<u64> {
        self.0.enter()?;
        if !self.0.identity.vmm {
            return Err(Error::unsupported("the device has no virtual memory management"));
        }
        let (mut granularity, mut ptr, properties) = (0, 0, self.properties());
        // SAFETY: the outputs are ours.
        unsafe {
            cu!(self.0.driver, cuMemGetAllocationGranularity(&mut granularity, &properties, 0))?;
            if !LIMITS.granularity.is_multiple_of(granularity.max(1) as u64) {
                let found = format!("pages of {granularity} bytes, expected {}", LIMITS.granularity);
                return Err(Error::unsupported(found));
            }
            cu!(self.0.driver, cuMemAddressReserve(&mut ptr, size as usize, 0, 0, 0))?;
        }
        Ok(ptr)
    }

    fn va_map(&self, addr: u64, n: u64) -> Result<u64> {
        self.0.enter()?;
        let (mut handle, properties, driver) = (0, self.properties(), &self.0.driver);
        let access = CUmemAccessDesc { location: self.location(), flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the output is ours; the host maps within what it reserved, each page once.
        unsafe {
            cu!(driver, cuMemCreate(&mut handle, n as usize, &properties, 0))
                .map_err(|e| self.0.with_bytes(e, n))?;
            if let Err(e) = cu!(driver, cuMemMap(addr, n as usize, 0, handle, 0)) {
                let _ = cu!(driver, cuMemRelease(handle));
                return Err(e);
            }
            if let Err(e) = cu!(driver, cuMemSetAccess(addr, n as usize, &access, 1)) {
                let _ = cu!(driver, cuMemUnmap(addr, n as usize));
                let _ = cu!(driver, cuMemRelease(handle));
                return Err(e);
            }
        }
        Ok(handle)
    }

    fn va_unmap(&self, addr: u64, n: u64, chunk: u64) {
        self.wait();
        // SAFETY: exactly what `va_map` mapped, once; all work is done. Nobody is left to hear of a failure.
        unsafe {
            let _ = cu!(self.0.driver, cuMemUnmap(addr, n as usize));
            let _ = cu!(self.0.driver, cuMemRelease(chunk));
        }
    }

    fn va_release(&self, addr: u64, size: u64) {
        self.wait();
        // SAFETY: exactly what `va_reserve` gave, once, with nothing mapped.
        let _ = unsafe { cu!(self.0.driver, cuMemAddressFree(addr, size as usize)) };
    }
}
