//! How the host takes scratch memory of a card: plain, or reserved addresses with memory mapped to them.

use crate::runtime::{Runtime, acl};
use crate::sys::*;
use llmrt_plugin::{DevmemLimits, Result, ScratchMemory, Status};
use std::ffi::c_void;
use std::sync::Arc;

/// Pages are 2 MiB, and one reservation has at most as many addresses as the largest card has memory.
pub const LIMITS: DevmemLimits = DevmemLimits { granularity: 2 << 20, va_limit: 64 << 30 };

/// Addresses for huge pages: the flag is their size since CANN 8.1 (acl_rt.h); older releases take no flag.
const HUGE_PAGES: u64 = 1;
const NO_FLAGS: u64 = 0;

/// Scratch memory of one card.
pub struct CardScratch {
    runtime: Arc<Runtime>,
    device: i32,
}

impl CardScratch {
    /// Of this card.
    pub fn new(runtime: &Arc<Runtime>, device: i32) -> CardScratch {
        CardScratch { runtime: runtime.clone(), device }
    }

    fn properties(&self) -> aclrtPhysicalMemProp {
        aclrtPhysicalMemProp {
            handleType: 0,
            allocationType: 0,
            memAttr: ACL_HBM_MEM_HUGE,
            location: aclrtMemLocation { id: self.device as u32, type_: ACL_MEM_LOCATION_TYPE_DEVICE },
            reserve: 0,
        }
    }

    /// Reserves addresses to which a page can be mapped: that is tried.
    fn reserve(&self, size: u64, flags: u64) -> Result<u64> {
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe {
            acl!(
                self.runtime,
                aclrtReserveMemAddress(&mut ptr, size as usize, 0, std::ptr::null_mut(), flags)
            )?
        };
        let addr = ptr as u64;
        // Nothing used the page, so nothing is waited for.
        match self.va_map(addr, LIMITS.granularity) {
            Ok(page) => {
                self.unmap(addr, page);
                Ok(addr)
            }
            Err(e) => {
                self.release(addr);
                Err(e)
            }
        }
    }

    fn unmap(&self, addr: u64, page: u64) {
        // SAFETY: exactly what `va_map` mapped, once; all work is done. A failure has no reader.
        unsafe {
            let _ = acl!(self.runtime, aclrtUnmapMem(addr as *mut c_void));
            let _ = acl!(self.runtime, aclrtFreePhysical(page as aclrtDrvMemHandle));
        }
    }

    fn release(&self, addr: u64) {
        // SAFETY: exactly what `reserve` gave, once, with nothing mapped. A failure has no reader.
        let _ = unsafe { acl!(self.runtime, aclrtReleaseMemAddress(addr as *mut c_void)) };
    }

    /// Maps a huge page to addresses, those `for_huge` pages or those without a size, and undoes it.
    pub fn try_map(&self, for_huge: bool) -> Result<()> {
        let flags = if for_huge { HUGE_PAGES } else { NO_FLAGS };
        self.runtime.enter(self.device)?;
        self.reserve(LIMITS.granularity, flags).map(|addr| self.release(addr))
    }

    /// Waits for the card's work, and then frees what that may have used. A wait fails while this thread captures, and on a card
    /// that is lost: what may be in use is kept then.
    fn when_idle(&self, free: impl FnOnce()) {
        // Waiting for a card invalidates what other threads capture on it.
        let _quiet = self.runtime.captures.lock();
        let entered = self.runtime.enter(self.device);
        // SAFETY: no arguments.
        if entered.and_then(|()| unsafe { acl!(self.runtime, aclrtSynchronizeDevice()) }).is_ok() {
            free();
        }
    }
}

impl ScratchMemory for CardScratch {
    fn raw_alloc(&self, size: u64) -> Result<u64> {
        self.runtime.enter(self.device)?;
        self.runtime.alloc(size).map(|ptr| ptr as u64)
    }

    fn raw_free(&self, addr: u64) {
        // SAFETY: the host frees what `raw_alloc` gave, once; all work is done.
        self.when_idle(|| unsafe { self.runtime.free(addr as *mut c_void) });
    }

    /// Refused by drivers without virtual memory, or where no page can be mapped: the host then takes plain memory.
    fn va_reserve(&self, size: u64) -> Result<u64> {
        self.runtime.enter(self.device)?;
        let (mut granularity, mut properties) = (0, self.properties());
        let minimum = ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: the outputs are ours.
        unsafe {
            acl!(self.runtime, aclrtMemGetAllocationGranularity(&mut properties, minimum, &mut granularity))?
        };
        if !LIMITS.granularity.is_multiple_of(granularity.max(1) as u64) {
            let found = format!("pages of {granularity} bytes, expected {}", LIMITS.granularity);
            return Err(llmrt_plugin::Error::unsupported(found));
        }
        match self.reserve(size, HUGE_PAGES) {
            Err(e) if e.status != Status::OomDevice => self.reserve(size, NO_FLAGS),
            reserved => reserved,
        }
    }

    fn va_map(&self, addr: u64, n: u64) -> Result<u64> {
        self.runtime.enter(self.device)?;
        let (mut handle, properties) = (std::ptr::null_mut(), self.properties());
        // SAFETY: the output is ours; the host maps within what it reserved, each page once.
        unsafe {
            acl!(self.runtime, aclrtMallocPhysical(&mut handle, n as usize, &properties, 0))?;
            let mapped = acl!(self.runtime, aclrtMapMem(addr as *mut c_void, n as usize, 0, handle, 0));
            if let Err(e) = mapped {
                let _ = acl!(self.runtime, aclrtFreePhysical(handle));
                return Err(e);
            }
        }
        Ok(handle as u64)
    }

    fn va_unmap(&self, addr: u64, _n: u64, chunk: u64) {
        self.when_idle(|| self.unmap(addr, chunk));
    }

    fn va_release(&self, addr: u64, _size: u64) {
        self.when_idle(|| self.release(addr));
    }
}
