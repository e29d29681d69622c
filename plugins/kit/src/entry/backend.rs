//! [`Stream`] as the ABI's backend table.

use super::{event, guard, guard_value};
use crate::{GraphView, Plan, Stream, TensorView};
use core::ffi::c_void;
use llmrt_abi::types as c;

/// What `*mut c::Backend` points to. Each has a table of its own: groups of functions it lacks are NULL in it.
#[repr(C)]
struct Shell {
    abi: c::Backend,
    vt: c::BackendVt,
    inner: Box<dyn Stream>,
}

/// What `*mut c::Plan` points to.
#[repr(C)]
struct PlanShell {
    abi: c::Plan,
    inner: Box<Plan>,
}

/// Gives a stream to the host.
pub(crate) fn into_raw(inner: Box<dyn Stream>) -> *mut c::Backend {
    let has = inner.features();
    let vt = c::BackendVt {
        struct_size: size_of::<c::BackendVt>() as u32,
        reserved: 0,
        destroy: Some(destroy),
        synchronize: Some(synchronize),
        compute: Some(compute),
        set_async: has.transfers.then_some(set_async),
        get_async: has.transfers.then_some(get_async),
        copy_async: has.copies.then_some(copy_async),
        event_record: has.events.then_some(event_record),
        event_wait: has.events.then_some(event_wait),
        plan_create: has.plans.then_some(plan_create),
        plan_update: has.plans.then_some(plan_update),
        plan_compute: has.plans.then_some(plan_compute),
        plan_destroy: has.plans.then_some(plan_destroy),
        native_handle: Some(native_handle),
    };
    let abi = c::Backend { vt: std::ptr::null(), imp: std::ptr::null_mut() };
    let shell = Box::into_raw(Box::new(Shell { abi, vt, inner }));
    // SAFETY: `shell` was just allocated; its table stays where it is until `destroy`.
    unsafe { (*shell).abi.vt = &raw const (*shell).vt };
    shell.cast()
}

/// # Safety
/// `be` came from [`into_raw`], was not destroyed, and no other thread uses it.
pub(super) unsafe fn inner<'a>(be: *mut c::Backend) -> &'a mut dyn Stream {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &mut *(*be.cast::<Shell>()).inner }
}

/// # Safety
/// `plan` came from [`plan_create`], was not destroyed, and no other thread uses it.
unsafe fn inner_plan<'a>(plan: *mut c::Plan) -> &'a mut Plan {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &mut *(*plan.cast::<PlanShell>()).inner }
}

// In every function below `be` came from `into_raw` and is used by one thread at a time; graphs, tensors, ranges,
// plans and events were checked by the host.

unsafe extern "C" fn destroy(be: *mut c::Backend) {
    guard_value((), || {
        // SAFETY: see above; the host destroys once.
        let mut shell = unsafe { Box::from_raw(be.cast::<Shell>()) };
        // No caller is left to receive the error; an earlier synchronize has reported it.
        let _ = shell.inner.synchronize();
    });
}

unsafe extern "C" fn synchronize(be: *mut c::Backend, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(be).synchronize()) }
}

unsafe extern "C" fn compute(be: *mut c::Backend, graph: *const c::Graph, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(be).compute(&GraphView::new(&*graph))) }
}

unsafe extern "C" fn set_async(
    be: *mut c::Backend,
    tensor: *const c::Tensor,
    src: *const c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; the host keeps the memory until an event or synchronize.
    unsafe { guard(err, || inner(be).set_async(&TensorView::new(&*tensor), src.cast(), n, off)) }
}

unsafe extern "C" fn get_async(
    be: *mut c::Backend,
    tensor: *const c::Tensor,
    dst: *mut c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; the host keeps the memory until an event or synchronize.
    unsafe { guard(err, || inner(be).get_async(&TensorView::new(&*tensor), dst.cast(), n, off)) }
}

unsafe extern "C" fn copy_async(
    dst_be: *mut c::Backend,
    src_be: *mut c::Backend,
    dst: *const c::Tensor,
    src: *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; both backends are this plugin's, and they are two.
    unsafe {
        guard(err, || {
            if dst_be == src_be || !is_ours(src_be) {
                return Err(crate::Error::unsupported("copy_async is between two backends of one plugin"));
            }
            inner(dst_be).copy_async(inner(src_be), &TensorView::new(&*dst), &TensorView::new(&*src))
        })
    }
}

/// # Safety
/// `be` is alive.
pub(super) unsafe fn is_ours(be: *mut c::Backend) -> bool {
    // SAFETY: only `into_raw` puts the table right after the object; any other backend's table is elsewhere, and
    // the comparison does not read it.
    unsafe {
        std::ptr::eq((*be).vt, be.wrapping_add(1).cast())
            && (*(*be).vt)
                .destroy
                .is_some_and(|f| std::ptr::fn_addr_eq(f, destroy as unsafe extern "C" fn(*mut c::Backend)))
    }
}

unsafe extern "C" fn event_record(be: *mut c::Backend, event: *mut c::Event, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(be).event_record(event::inner(event))) }
}

unsafe extern "C" fn event_wait(be: *mut c::Backend, event: *mut c::Event, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(be).event_wait(event::inner(event))) }
}

unsafe extern "C" fn plan_create(
    be: *mut c::Backend,
    graph: *const c::Graph,
    out: *mut *mut c::Plan,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; `out` is a pointer of the host.
    unsafe {
        guard(err, || {
            let inner = inner(be).plan_create(&GraphView::new(&*graph))?;
            let abi = c::Plan { imp: std::ptr::null_mut() };
            *out = Box::into_raw(Box::new(PlanShell { abi, inner })).cast();
            Ok(())
        })
    }
}

unsafe extern "C" fn plan_update(
    be: *mut c::Backend,
    plan: *mut c::Plan,
    graph: *const c::Graph,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(be).plan_update(inner_plan(plan), &GraphView::new(&*graph))) }
}

unsafe extern "C" fn plan_compute(
    be: *mut c::Backend,
    plan: *mut c::Plan,
    run_id: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(be).plan_compute(inner_plan(plan), run_id)) }
}

unsafe extern "C" fn plan_destroy(_be: *mut c::Backend, plan: *mut c::Plan) {
    // SAFETY: see above; the host destroys once.
    guard_value((), || drop(unsafe { Box::from_raw(plan.cast::<PlanShell>()) }));
}

unsafe extern "C" fn native_handle(be: *mut c::Backend) -> *mut c_void {
    // SAFETY: see above.
    guard_value(std::ptr::null_mut(), || unsafe { inner(be) }.native_handle())
}
