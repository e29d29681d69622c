//! [`Group`] as the extension `llmrt.collective`.

use super::{backend, device, guard, guard_value};
use crate::{Driver, Error, Group, PeerView, Result, Stream, TensorView};
use llmrt_abi::types as c;

/// What `*mut c::Group` points to.
#[repr(C)]
struct Shell {
    abi: c::Group,
    n: usize,
    inner: Box<dyn Group>,
}

/// The table, if the plugin's devices form groups.
pub(super) fn table<D: Driver>() -> Option<&'static c::CollectiveVt> {
    const {
        if D::COLLECTIVE {
            Some(&c::CollectiveVt {
                struct_size: size_of::<c::CollectiveVt>() as u32,
                reserved: 0,
                group_create: Some(group_create),
                group_destroy: Some(group_destroy),
                all_reduce: Some(all_reduce),
                all_gather: Some(all_gather),
                broadcast: Some(broadcast),
            })
        } else {
            None
        }
    }
}

// In every function below devices, groups and backends are live and of this plugin, and arrays have a row per device of the
// group; tensors were checked by the host, and output pointers are the host's.

unsafe extern "C" fn group_create(
    devices: *const *mut c::Device,
    n: u32,
    out: *mut *mut c::Group,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            let members = std::slice::from_raw_parts(devices, n as usize);
            let first = members.first().ok_or_else(|| Error::invalid("a group without devices"))?;
            let peers: Vec<_> = members.iter().map(|&dev| PeerView(&*dev)).collect();
            let inner = device::inner(*first).group(&peers)?;
            let abi = c::Group { imp: std::ptr::null_mut() };
            *out = Box::into_raw(Box::new(Shell { abi, n: n as usize, inner })).cast();
            Ok(())
        })
    }
}

unsafe extern "C" fn group_destroy(group: *mut c::Group) {
    // SAFETY: see above; the host destroys once.
    guard_value((), || drop(unsafe { Box::from_raw(group.cast::<Shell>()) }));
}

/// The group, and its streams.
///
/// # Safety
/// See above; no other thread uses either, and no two backends are one.
unsafe fn parts<'a>(
    group: *mut c::Group,
    backends: *const *mut c::Backend,
) -> Result<(&'a mut dyn Group, Vec<&'a mut dyn Stream>)> {
    // SAFETY: the caller's promise.
    unsafe {
        let shell = &mut *group.cast::<Shell>();
        let backends = std::slice::from_raw_parts(backends, shell.n);
        if !backends.iter().all(|&be| backend::is_ours(be)) {
            return Err(Error::invalid("a stream of another plugin"));
        }
        Ok((&mut *shell.inner, backends.iter().map(|&be| backend::inner(be)).collect()))
    }
}

/// # Safety
/// `tensors` has `n` rows.
unsafe fn views<'a>(tensors: *const *const c::Tensor, n: usize) -> Vec<TensorView<'a>> {
    // SAFETY: the caller's promise; the host keeps the tensors during the call.
    unsafe { std::slice::from_raw_parts(tensors, n).iter().map(|&t| TensorView::new(&*t)).collect() }
}

unsafe extern "C" fn all_reduce(
    group: *mut c::Group,
    backends: *const *mut c::Backend,
    src: *const *const c::Tensor,
    dst: *const *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            let (group, mut streams) = parts(group, backends)?;
            let n = streams.len();
            group.all_reduce(&mut streams, &views(src, n), &views(dst, n))
        })
    }
}

unsafe extern "C" fn all_gather(
    group: *mut c::Group,
    backends: *const *mut c::Backend,
    src: *const *const c::Tensor,
    dst: *const *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            let (group, mut streams) = parts(group, backends)?;
            let n = streams.len();
            group.all_gather(&mut streams, &views(src, n), &views(dst, n))
        })
    }
}

unsafe extern "C" fn broadcast(
    group: *mut c::Group,
    backends: *const *mut c::Backend,
    root: u32,
    tensors: *const *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            let (group, mut streams) = parts(group, backends)?;
            let n = streams.len();
            group.broadcast(&mut streams, root as usize, &views(tensors, n))
        })
    }
}
