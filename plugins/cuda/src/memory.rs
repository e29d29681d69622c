//! How the host takes scratch memory of a device: plain, or reserved addresses with memory mapped to them. What it
//! gives back is freed when no stream may use it any more.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::sys::*;
use llmrt_plugin::{DevmemLimits, Error, Result, ScratchMemory};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Pages are 2 MiB, and one reservation has at most as many addresses as the largest device has memory.
pub const LIMITS: DevmemLimits = DevmemLimits { granularity: 2 << 20, va_limit: 256 << 30 };

/// Scratch memory of one device.
pub struct GpuScratch {
    gpu: Arc<Gpu>,
    /// What the host gave back, until the wait for streams that may use it succeeds.
    left: Mutex<Vec<Left>>,
}

/// Memory or addresses that the host gave back.
enum Left {
    Plain(CUdeviceptr),
    Mapped { addr: CUdeviceptr, n: usize, chunk: CUmemGenericAllocationHandle },
    Reserved { addr: CUdeviceptr, size: usize },
}

impl GpuScratch {
    /// Of this device.
    pub fn new(gpu: &Arc<Gpu>) -> GpuScratch {
        GpuScratch { gpu: gpu.clone(), left: Mutex::default() }
    }

    /// Before the device is closed: what cannot go now goes with its context.
    pub fn close(&self) {
        let _ = self.settle();
        self.left().clear();
    }

    fn left(&self) -> MutexGuard<'_, Vec<Left>> {
        self.left.lock()
    }

    /// Nothing goes while work may use it. A wait that fails leaves it here; the next call tries again, and an allocation
    /// answers with the failure.
    fn give_back(&self, piece: Left) {
        self.left().push(piece);
        let _ = self.settle();
    }

    /// Waits for all streams, and lets go what was given back, in that order.
    fn settle(&self) -> Result<()> {
        let mut left = self.left();
        if left.is_empty() {
            return Ok(());
        }
        self.gpu.enter()?;
        let driver = &self.gpu.driver;
        self.gpu.streams.wait(driver)?;
        for piece in left.drain(..) {
            // SAFETY: exactly what the host was given, once, and all work is done; nothing is mapped at addresses that
            // go, because their mappings came here before. A failure has no reader.
            unsafe {
                match piece {
                    Left::Plain(addr) => self.gpu.free(addr),
                    Left::Mapped { addr, n, chunk } => {
                        let _ = cu!(driver, cuMemUnmap(addr, n));
                        let _ = cu!(driver, cuMemRelease(chunk));
                    }
                    Left::Reserved { addr, size } => {
                        let _ = cu!(driver, cuMemAddressFree(addr, size));
                    }
                }
            }
        }
        Ok(())
    }

    fn location(&self) -> CUmemLocation {
        CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.gpu.device }
    }

    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }
}

impl ScratchMemory for GpuScratch {
    fn raw_alloc(&self, size: u64) -> Result<u64> {
        self.settle()?;
        self.gpu.enter()?;
        self.gpu.alloc(size)
    }

    fn raw_free(&self, addr: u64) {
        self.give_back(Left::Plain(addr));
    }

    /// Refused where the device cannot: the host then takes plain memory.
    fn va_reserve(&self, size: u64) -> Result<u64> {
        self.gpu.enter()?;
        if !self.gpu.identity.vmm {
            return Err(Error::unsupported("the device has no virtual memory management"));
        }
        let (mut granularity, mut ptr, properties) = (0, 0, self.properties());
        // SAFETY: the outputs are ours.
        unsafe {
            cu!(
                self.gpu.driver,
                cuMemGetAllocationGranularity(
                    &mut granularity,
                    &properties,
                    CU_MEM_ALLOC_GRANULARITY_MINIMUM
                )
            )?;
            if !LIMITS.granularity.is_multiple_of(granularity.max(1) as u64) {
                let found = format!("pages of {granularity} bytes, expected {}", LIMITS.granularity);
                return Err(Error::unsupported(found));
            }
            cu!(self.gpu.driver, cuMemAddressReserve(&mut ptr, size as usize, 0, 0, 0))?;
        }
        Ok(ptr)
    }

    fn va_map(&self, addr: u64, n: u64) -> Result<u64> {
        self.settle()?;
        self.gpu.enter()?;
        let (mut handle, properties, driver) = (0, self.properties(), &self.gpu.driver);
        let access = CUmemAccessDesc { location: self.location(), flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the output is ours; the host maps within what it reserved, each page once.
        unsafe {
            cu!(driver, cuMemCreate(&mut handle, n as usize, &properties, 0))
                .map_err(|e| self.gpu.with_bytes(e, n))?;
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
        self.give_back(Left::Mapped { addr, n: n as usize, chunk });
    }

    fn va_release(&self, addr: u64, size: u64) {
        self.give_back(Left::Reserved { addr, size: size as usize });
    }
}
