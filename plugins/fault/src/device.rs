//! Devices: every call counted, then passed on; what they make is wrapped.

use crate::graph::{Translated, tensor};
use crate::rule::Rules;
use crate::{backend, buffer, inner};
use core::ffi::c_void;
use llmrt_plugin::abi::types as c;
use std::sync::Arc;

/// What `*mut c::Device` points to.
#[repr(C)]
struct Shell {
    abi: c::Device,
    vt: c::DeviceVt,
    inner: *mut c::Device,
    inner_vt: c::DeviceVt,
    rules: Arc<Rules>,
}

/// Wraps a device; to the host it looks the same.
///
/// # Safety
/// `inner` is a device of the wrapped plugin and lives as long as the wrapper.
pub unsafe fn wrap(inner: *mut c::Device, rules: Arc<Rules>) -> *mut c::Device {
    // SAFETY: a live device has a table.
    let inner_vt: c::DeviceVt = unsafe { inner::read((*inner).vt) };
    let vt = c::DeviceVt {
        struct_size: size_of::<c::DeviceVt>() as u32,
        reserved: 0,
        open: Some(OPEN),
        close: inner_vt.close.and(Some(close)),
        memory: inner_vt.memory.and(Some(memory)),
        supports: inner_vt.supports.and(Some(supports)),
        buffer_alloc: inner_vt.buffer_alloc.and(Some(buffer_alloc)),
        backend_create: inner_vt.backend_create.and(Some(backend_create)),
        alloc_size: inner_vt.alloc_size.and(Some(alloc_size)),
        accepts: inner_vt.accepts.and(Some(accepts)),
        event_create: inner_vt.event_create.and(Some(event_create)),
        import_host: inner_vt.import_host.and(Some(import_host)),
    };
    // SAFETY: a live device has an info, which lives as long.
    let abi = c::Device { vt: std::ptr::null(), info: unsafe { (*inner).info }, imp: std::ptr::null_mut() };
    let shell = Box::into_raw(Box::new(Shell { abi, vt, inner, inner_vt, rules }));
    // SAFETY: just allocated; the table stays where it is until `free`.
    unsafe { (*shell).abi.vt = &raw const (*shell).vt };
    shell.cast()
}

/// Ends a wrapper.
///
/// # Safety
/// `dev` came from [`wrap`] and is not used afterwards.
pub unsafe fn free(dev: *mut c::Device) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(dev.cast::<Shell>()) });
}

/// # Safety
/// `dev` came from [`wrap`] and was not freed.
unsafe fn shell<'a>(dev: *mut c::Device) -> &'a Shell {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &*dev.cast::<Shell>() }
}

// In every function below `dev` came from `wrap`; graphs, tensors and output pointers are the host's.

const OPEN: unsafe extern "C" fn(*mut c::Device, *mut c::Error) -> i32 = open;

unsafe extern "C" fn open(dev: *mut c::Device, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { pass!(shell(dev), err, open()) }
}

unsafe extern "C" fn close(dev: *mut c::Device) {
    // SAFETY: see above.
    unsafe {
        if let Some(close) = shell(dev).inner_vt.close {
            close(shell(dev).inner);
        }
    }
}

unsafe extern "C" fn memory(dev: *mut c::Device, free: *mut u64, total: *mut u64, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { pass!(shell(dev), err, memory(free, total)) }
}

unsafe extern "C" fn supports(
    dev: *mut c::Device,
    graph: *const c::Graph,
    first: u32,
    n: u32,
    verdicts: *mut c::Verdict,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        let graph = Translated::new(graph);
        pass!(shell(dev), err, supports(graph.as_ptr(), first, n, verdicts))
    }
}

unsafe extern "C" fn buffer_alloc(
    dev: *mut c::Device,
    bt: u32,
    size: u64,
    usage: u32,
    out: *mut *mut c::Buffer,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        let code = pass!(shell(dev), err, buffer_alloc(bt, size, usage, out));
        wrap_buffer(shell(dev), code, out)
    }
}

unsafe extern "C" fn import_host(
    dev: *mut c::Device,
    ptr: *mut c_void,
    n: u64,
    flags: u32,
    out: *mut *mut c::Buffer,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        let code = pass!(shell(dev), err, import_host(ptr, n, flags, out));
        wrap_buffer(shell(dev), code, out)
    }
}

/// # Safety
/// If `code` is 0, `*out` is NULL or a buffer that the wrapped plugin just made.
unsafe fn wrap_buffer(shell: &Shell, code: i32, out: *mut *mut c::Buffer) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        if code == 0 && !(*out).is_null() {
            *out = buffer::wrap(*out, shell.rules.clone());
        }
    }
    code
}

unsafe extern "C" fn backend_create(
    dev: *mut c::Device,
    params: *const c::BackendParams,
    out: *mut *mut c::Backend,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; a backend that was just made is ours to wrap.
    unsafe {
        let code = pass!(shell(dev), err, backend_create(params, out));
        if code == 0 && !(*out).is_null() {
            *out = backend::wrap(*out, shell(dev).rules.clone());
        }
        code
    }
}

unsafe extern "C" fn alloc_size(dev: *mut c::Device, bt: u32, t: *const c::Tensor) -> u64 {
    // SAFETY: see above.
    unsafe { shell(dev).inner_vt.alloc_size.map_or(0, |f| f(shell(dev).inner, bt, &tensor(t))) }
}

unsafe extern "C" fn accepts(dev: *mut c::Device, owner: *const c::Device, bt: u32) -> u32 {
    // SAFETY: see above; `owner` is a live device, and only our devices have our `open`.
    unsafe {
        let is_ours = (*(*owner).vt).open.is_some_and(|f| std::ptr::fn_addr_eq(f, OPEN));
        let owner = if is_ours { shell(owner.cast_mut()).inner.cast_const() } else { owner };
        shell(dev).inner_vt.accepts.map_or(0, |f| f(shell(dev).inner, owner, bt))
    }
}

unsafe extern "C" fn event_create(
    dev: *mut c::Device,
    flags: u32,
    out: *mut *mut c::Event,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above. The event goes to the host as it is.
    unsafe { pass!(shell(dev), err, event_create(flags, out)) }
}
