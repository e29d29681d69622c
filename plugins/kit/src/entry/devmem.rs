//! [`ScratchMemory`] as the extension `llmrt.devmem`.

use super::{device, guard, guard_value};
use crate::{Driver, Error, Result, ScratchMemory};
use llmrt_abi::types as c;

/// The table, if the plugin lets the host manage scratch memory.
pub(super) fn table<D: Driver>() -> Option<&'static c::DevmemVt> {
    const {
        match D::DEVMEM {
            None => None,
            Some(limits) => {
                let has_virtual_memory = limits.granularity > 0;
                Some(&c::DevmemVt {
                    struct_size: size_of::<c::DevmemVt>() as u32,
                    flags: 0,
                    granularity: limits.granularity,
                    va_limit: limits.va_limit,
                    raw_alloc: Some(raw_alloc),
                    raw_free: Some(raw_free),
                    va_reserve: if has_virtual_memory { Some(va_reserve) } else { None },
                    va_map: if has_virtual_memory { Some(va_map) } else { None },
                    va_unmap: if has_virtual_memory { Some(va_unmap) } else { None },
                    va_release: if has_virtual_memory { Some(va_release) } else { None },
                })
            }
        }
    }
}

/// # Safety
/// `dev` is a device of this plugin that was not freed.
unsafe fn memory<'a>(dev: *mut c::Device) -> Result<&'a dyn ScratchMemory> {
    // SAFETY: the caller's promise.
    let memory = unsafe { device::inner(dev) }.scratch_memory();
    memory.ok_or_else(|| Error::unsupported("this device manages its scratch memory alone"))
}

// In every function below `dev` is an open device of this plugin, and output pointers are the host's.

unsafe extern "C" fn raw_alloc(dev: *mut c::Device, size: u64, addr: *mut u64, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            *addr = memory(dev)?.raw_alloc(size)?;
            Ok(())
        })
    }
}

unsafe extern "C" fn raw_free(dev: *mut c::Device, addr: u64) {
    // SAFETY: see above.
    guard_value((), || unsafe { memory(dev) }.map_or((), |m| m.raw_free(addr)));
}

unsafe extern "C" fn va_reserve(dev: *mut c::Device, size: u64, addr: *mut u64, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            *addr = memory(dev)?.va_reserve(size)?;
            Ok(())
        })
    }
}

unsafe extern "C" fn va_map(
    dev: *mut c::Device,
    addr: u64,
    n: u64,
    chunk: *mut u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            *chunk = memory(dev)?.va_map(addr, n)?;
            Ok(())
        })
    }
}

unsafe extern "C" fn va_unmap(dev: *mut c::Device, addr: u64, n: u64, chunk: u64) {
    // SAFETY: see above.
    guard_value((), || unsafe { memory(dev) }.map_or((), |m| m.va_unmap(addr, n, chunk)));
}

unsafe extern "C" fn va_release(dev: *mut c::Device, addr: u64, size: u64) {
    // SAFETY: see above.
    guard_value((), || unsafe { memory(dev) }.map_or((), |m| m.va_release(addr, size)));
}
