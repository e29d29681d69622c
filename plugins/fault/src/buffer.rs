//! Buffers: every call counted, then passed on.

use crate::graph::tensor;
use crate::inner;
use crate::rule::{Damage, Rules};
use core::ffi::c_void;
use llmrt_plugin::abi::types as c;
use llmrt_plugin::entry::{guard, guard_value};
use std::sync::Arc;

/// What `*mut c::Buffer` points to when it is ours.
#[repr(C)]
struct Shell {
    abi: c::Buffer,
    vt: c::BufferVt,
    inner: *mut c::Buffer,
    inner_vt: c::BufferVt,
    rules: Arc<Rules>,
}

/// Wraps a buffer.
///
/// # Safety
/// `inner` was just made by the wrapped plugin, and is the caller's to give.
pub unsafe fn wrap(inner: *mut c::Buffer, rules: Arc<Rules>) -> *mut c::Buffer {
    // SAFETY: a live buffer has a table.
    let inner_vt: c::BufferVt = unsafe { inner::read((*inner).vt) };
    let vt = c::BufferVt {
        struct_size: size_of::<c::BufferVt>() as u32,
        reserved: 0,
        destroy: Some(DESTROY),
        set: inner_vt.set.and(Some(set)),
        get: inner_vt.get.and(Some(get)),
        fill: inner_vt.fill.and(Some(fill)),
        seal: inner_vt.seal.and(Some(seal)),
        copy: inner_vt.copy.and(Some(copy)),
        host_ptr: inner_vt.host_ptr.and(Some(host_ptr)),
    };
    let abi = c::Buffer { vt: std::ptr::null(), imp: std::ptr::null_mut() };
    let shell = Box::into_raw(Box::new(Shell { abi, vt, inner, inner_vt, rules }));
    // SAFETY: just allocated; the table stays where it is until `destroy`.
    unsafe { (*shell).abi.vt = &raw const (*shell).vt };
    shell.cast()
}

/// The wrapped plugin's buffer if this is one of ours; the same otherwise.
///
/// # Safety
/// `buf` is NULL or alive.
pub unsafe fn inner_or_same(buf: *mut c::Buffer) -> *mut c::Buffer {
    // SAFETY: the caller's promise; every table has `destroy`, and only our buffers have ours.
    unsafe {
        let Some(vt) = buf.as_ref().map(|b| b.vt) else { return buf };
        match (*vt).destroy.is_some_and(|f| std::ptr::fn_addr_eq(f, DESTROY)) {
            true => (*buf.cast::<Shell>()).inner,
            false => buf,
        }
    }
}

/// Damages the first value of a tensor in a buffer of the wrapped plugin.
///
/// # Safety
/// A tensor of a live buffer, which no work is going on in.
pub unsafe fn damage(t: &c::Tensor, how: Damage) {
    let mut value = [0u8; 4];
    let n = if t.dtype == llmrt_plugin::DType::F32.id() { 4 } else { 2 }.min(t.nbytes as usize);
    let mut err = c::Error::empty();
    // SAFETY: the caller's promise; the range is inside the tensor.
    unsafe {
        let Some(buffer) = t.buffer.as_ref() else { return };
        let vt: c::BufferVt = inner::read(buffer.vt);
        let (Some(get), Some(set)) = (vt.get, vt.set) else { return };
        if get(t.buffer, t, value.as_mut_ptr().cast(), 0, n as u64, &mut err) == 0 {
            how.apply(&mut value[..n]);
            set(t.buffer, t, value.as_ptr().cast(), 0, n as u64, &mut err);
        }
    }
}

/// # Safety
/// `buf` came from [`wrap`] and was not destroyed.
unsafe fn shell<'a>(buf: *mut c::Buffer) -> &'a Shell {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &*buf.cast::<Shell>() }
}

// In every function below `buf` came from `wrap`; tensors, ranges and memory were checked by the host.

const DESTROY: unsafe extern "C" fn(*mut c::Buffer) = destroy;

unsafe extern "C" fn destroy(buf: *mut c::Buffer) {
    // SAFETY: see above; the host destroys once.
    unsafe {
        let shell = Box::from_raw(buf.cast::<Shell>());
        if let Some(destroy) = shell.inner_vt.destroy {
            destroy(shell.inner);
        }
    }
}

unsafe extern "C" fn set(
    buf: *mut c::Buffer,
    t: *const c::Tensor,
    src: *const c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { pass!(shell(buf), err, set(&tensor(t), src, off, n)) }
}

unsafe extern "C" fn get(
    buf: *mut c::Buffer,
    t: *const c::Tensor,
    dst: *mut c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; `dst` has `n` bytes.
    unsafe {
        let shell = shell(buf);
        let mut damage = None;
        let code = guard(err, || {
            damage = shell.rules.fail("get", None)?;
            Ok(())
        });
        let Some(get) = shell.inner_vt.get.filter(|_| code == 0) else { return code };
        let code = get(shell.inner, &tensor(t), dst, off, n, err);
        if let Some(damage) = damage.filter(|_| code == 0 && n > 0) {
            damage.apply(std::slice::from_raw_parts_mut(dst.cast(), n.min(4) as usize));
        }
        code
    }
}

unsafe extern "C" fn fill(buf: *mut c::Buffer, off: u64, n: u64, byte: u8, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { pass!(shell(buf), err, fill(off, n, byte)) }
}

unsafe extern "C" fn seal(
    buf: *mut c::Buffer,
    t: *const c::Tensor,
    out: *mut c::Layout,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { pass!(shell(buf), err, seal(&tensor(t), out)) }
}

unsafe extern "C" fn copy(
    dst_buf: *mut c::Buffer,
    dst: *const c::Tensor,
    src_buf: *mut c::Buffer,
    src: *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; the source may be another plugin's.
    unsafe { pass!(shell(dst_buf), err, copy(&tensor(dst), inner_or_same(src_buf), &tensor(src))) }
}

unsafe extern "C" fn host_ptr(buf: *mut c::Buffer) -> *mut c_void {
    // SAFETY: see above.
    unsafe {
        let shell = shell(buf);
        let Some(host_ptr) = shell.inner_vt.host_ptr else { return std::ptr::null_mut() };
        guard_value(std::ptr::null_mut(), || host_ptr(shell.inner))
    }
}
