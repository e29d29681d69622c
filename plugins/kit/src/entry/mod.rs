//! The C side of the traits: one file per object, every function inside [`guard`].

pub mod backend;
pub mod buffer;
pub mod collective;
pub mod device;
pub mod devmem;
pub mod event;
pub mod plugin;

use crate::{Driver, Error, Result};
use core::ffi::c_void;
use llmrt_abi::types as c;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `get_extension` of the plugin's table: accepts every name and version, has a table for what the driver offers.
///
/// # Safety
/// `name` has `len` readable bytes.
pub(crate) unsafe extern "C" fn extension<D: Driver>(name: c::Str, version: u32) -> *const c_void {
    // SAFETY: the host's promise.
    let table = match (unsafe { bytes(name.ptr.cast(), name.len) }, version) {
        (b"llmrt.devmem", 0) => devmem::table::<D>().map(|table| std::ptr::from_ref(table).cast()),
        (b"llmrt.collective", 0) => collective::table::<D>().map(|table| std::ptr::from_ref(table).cast()),
        _ => None,
    };
    table.unwrap_or(std::ptr::null())
}

/// Runs plugin code; an error or a panic is written to `err` and becomes a status number.
///
/// # Safety
/// `err` is NULL or points to an error of the host, writable for this call.
pub unsafe fn guard(err: *mut c::Error, body: impl FnOnce() -> Result<()>) -> i32 {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(payload) => Error::from_panic(payload),
    };
    // SAFETY: the caller's promise.
    unsafe { error.write(err) }
}

/// Runs plugin code that answers a plain value; a panic gives `otherwise`.
pub fn guard_value<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        otherwise
    })
}

/// Bytes of the host to read; NULL is fine when there are none.
///
/// # Safety
/// `ptr` has `n` readable bytes that do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(ptr: *const core::ffi::c_void, n: u64) -> &'a [u8] {
    if n == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(ptr.cast(), n as usize) }
}

/// Bytes of the host to write.
///
/// # Safety
/// `ptr` has `n` bytes that nothing else touches during `'a`.
pub(crate) unsafe fn bytes_mut<'a>(ptr: *mut core::ffi::c_void, n: u64) -> &'a mut [u8] {
    if n == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(ptr.cast(), n as usize) }
}
