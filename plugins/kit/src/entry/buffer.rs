//! [`Buffer`] as the ABI's buffer table.

use super::{bytes, bytes_mut, guard, guard_value};
use crate::host::borrowed;
use crate::{Buffer, TensorView};
use core::ffi::c_void;
use llmrt_abi::types as c;
use std::any::Any;

/// What `*mut c::Buffer` points to when it is ours.
#[repr(C)]
struct Shell {
    abi: c::Buffer,
    inner: Box<dyn Buffer>,
}

/// Its address also distinguishes our buffers from those of other plugins.
static VT: c::BufferVt = c::BufferVt {
    struct_size: size_of::<c::BufferVt>() as u32,
    reserved: 0,
    destroy: Some(destroy),
    set: Some(set),
    get: Some(get),
    fill: Some(fill),
    seal: Some(seal),
    copy: Some(copy),
    host_ptr: Some(host_ptr),
};

/// Gives a buffer to the host.
pub(crate) fn into_raw(inner: Box<dyn Buffer>) -> *mut c::Buffer {
    let abi = c::Buffer { vt: &VT, imp: std::ptr::null_mut() };
    Box::into_raw(Box::new(Shell { abi, inner })).cast()
}

/// Takes back what [`into_raw`] gave, where the host did not get it.
///
/// # Safety
/// `buf` came from [`into_raw`] and is not used afterwards.
pub(crate) unsafe fn free(buf: *mut c::Buffer) {
    // SAFETY: the caller's promise.
    unsafe { destroy(buf) }
}

/// # Safety
/// `buf` came from [`into_raw`] and was not destroyed.
unsafe fn inner<'a>(buf: *mut c::Buffer) -> &'a dyn Buffer {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &*(*buf.cast::<Shell>()).inner }
}

/// The buffer as its own type, if this plugin made it.
///
/// # Safety
/// `buf` is NULL or alive during `'a`.
pub(crate) unsafe fn own<'a>(buf: *mut c::Buffer) -> Option<&'a dyn Any> {
    // SAFETY: `buf` is alive, and only `into_raw` gives out buffers with this table.
    unsafe { (!buf.is_null() && std::ptr::eq((*buf).vt, &VT)).then(|| inner(buf) as &dyn Any) }
}

/// Address of the buffer's first byte for the CPU, of any plugin's buffer.
///
/// # Safety
/// `buf` is NULL or alive.
pub(crate) unsafe fn host_ptr_of(buf: *mut c::Buffer) -> Option<*mut u8> {
    // SAFETY: `buf` is alive; a foreign table is read only up to its `struct_size`.
    unsafe {
        let vt = buf.as_ref()?.vt;
        if std::ptr::eq(vt, &VT) {
            return inner(buf).host_ptr();
        }
        let end = std::mem::offset_of!(c::BufferVt, host_ptr) + size_of::<usize>();
        if ((*vt).struct_size as usize) < end {
            return None;
        }
        let ptr = ((*vt).host_ptr?)(buf).cast::<u8>();
        (!ptr.is_null()).then_some(ptr)
    }
}

// In every function below `buf` came from `into_raw` and tensors, ranges and memory were checked by the host.

unsafe extern "C" fn destroy(buf: *mut c::Buffer) {
    // SAFETY: see above; the host destroys once.
    guard_value((), || drop(unsafe { Box::from_raw(buf.cast::<Shell>()) }));
}

unsafe extern "C" fn set(
    buf: *mut c::Buffer,
    tensor: *const c::Tensor,
    src: *const c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(buf).set(&TensorView::new(&*tensor), bytes(src, n), off)) }
}

unsafe extern "C" fn get(
    buf: *mut c::Buffer,
    tensor: *const c::Tensor,
    dst: *mut c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(buf).get(&TensorView::new(&*tensor), bytes_mut(dst, n), off)) }
}

unsafe extern "C" fn fill(buf: *mut c::Buffer, off: u64, n: u64, byte: u8, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(buf).fill(off, n, byte)) }
}

unsafe extern "C" fn seal(
    buf: *mut c::Buffer,
    tensor: *const c::Tensor,
    out: *mut c::Layout,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; `out` is a layout of the host.
    unsafe {
        guard(err, || {
            let layout = inner(buf).seal(&TensorView::new(&*tensor))?;
            let struct_size = (*out).struct_size;
            *out = c::Layout {
                struct_size,
                layout_id: layout.id,
                flags: layout.flags,
                reserved: 0,
                stored_bytes: layout.stored_bytes,
                row_granularity: layout.row_granularity,
                name: borrowed(layout.name),
            };
            Ok(())
        })
    }
}

unsafe extern "C" fn copy(
    dst_buf: *mut c::Buffer,
    dst: *const c::Tensor,
    _src_buf: *mut c::Buffer,
    src: *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; the tensors name their buffers.
    unsafe { guard(err, || inner(dst_buf).copy_from(&TensorView::new(&*dst), &TensorView::new(&*src))) }
}

unsafe extern "C" fn host_ptr(buf: *mut c::Buffer) -> *mut c_void {
    // SAFETY: see above.
    guard_value(None, || unsafe { inner(buf) }.host_ptr()).map_or(std::ptr::null_mut(), |ptr| ptr.cast())
}
