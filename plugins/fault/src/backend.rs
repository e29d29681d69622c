//! Streams: every call counted, then passed on; results damaged where a rule requires it.

use crate::graph::{Translated, tensor};
use crate::rule::{Damage, Rules};
use crate::{buffer, inner};
use core::ffi::c_void;
use llmrt_plugin::abi::types as c;
use llmrt_plugin::entry::guard;
use llmrt_plugin::{Error, GraphView, Result, Scope, Status};
use std::collections::HashMap;
use std::sync::Arc;

/// What `*mut c::Backend` points to.
#[repr(C)]
struct Shell {
    abi: c::Backend,
    vt: c::BackendVt,
    inner: *mut c::Backend,
    inner_vt: c::BackendVt,
    faults: Faults,
    /// Graphs that enqueued work uses.
    in_flight: Vec<Translated>,
    /// Graphs of plans.
    plans: HashMap<*mut c::Plan, Translated>,
}

/// What goes wrong on a stream.
struct Faults {
    rules: Arc<Rules>,
    /// The injected error that broke the stream: every call answers it from then on.
    broken: Option<Error>,
}

/// [`pass`], and an error of stream scope stays.
macro_rules! pass_on {
    ($shell:expr, $err:expr, $name:ident($($arg:expr),*)) => {{
        let shell = $shell;
        match guard($err, || shell.faults.rule(stringify!($name), None).map(|_| ())) {
            0 => match shell.inner_vt.$name {
                Some(f) => f(shell.inner, $($arg,)* $err),
                None => Status::Unsupported.code(),
            },
            code => code,
        }
    }};
}

/// Wraps a stream.
///
/// # Safety
/// `inner` was just made by the wrapped plugin, and is the caller's to give.
pub unsafe fn wrap(inner: *mut c::Backend, rules: Arc<Rules>) -> *mut c::Backend {
    // SAFETY: a live backend has a table.
    let inner_vt: c::BackendVt = unsafe { inner::read((*inner).vt) };
    let vt = c::BackendVt {
        struct_size: size_of::<c::BackendVt>() as u32,
        reserved: 0,
        destroy: inner_vt.destroy.and(Some(destroy)),
        synchronize: inner_vt.synchronize.and(Some(synchronize)),
        compute: inner_vt.compute.and(Some(compute)),
        set_async: inner_vt.set_async.and(Some(set_async)),
        get_async: inner_vt.get_async.and(Some(get_async)),
        copy_async: inner_vt.copy_async.and(Some(copy_async)),
        event_record: inner_vt.event_record.and(Some(event_record)),
        event_wait: inner_vt.event_wait.and(Some(event_wait)),
        plan_create: inner_vt.plan_create.and(Some(plan_create)),
        plan_update: inner_vt.plan_update.and(Some(plan_update)),
        plan_compute: inner_vt.plan_compute.and(Some(plan_compute)),
        plan_destroy: inner_vt.plan_destroy.and(Some(plan_destroy)),
        native_handle: inner_vt.native_handle.and(Some(native_handle)),
    };
    let abi = c::Backend { vt: std::ptr::null(), imp: std::ptr::null_mut() };
    let (in_flight, plans) = Default::default();
    let faults = Faults { rules, broken: None };
    let shell = Shell { abi, vt, inner, inner_vt, faults, in_flight, plans };
    let shell = Box::into_raw(Box::new(shell));
    // SAFETY: just allocated; the table stays where it is until `destroy`.
    unsafe { (*shell).abi.vt = &raw const (*shell).vt };
    shell.cast()
}

/// # Safety
/// `be` came from [`wrap`], was not destroyed, and no other thread uses it.
unsafe fn shell<'a>(be: *mut c::Backend) -> &'a mut Shell {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &mut *be.cast::<Shell>() }
}

impl Faults {
    /// Counts a call. What breaks the stream is kept, and answers all later calls.
    fn rule(&mut self, call: &str, graph: Option<&GraphView<'_>>) -> Result<Option<Damage>> {
        if let Some(e) = &self.broken {
            return Err(e.clone());
        }
        let outcome = self.rules.fail(call, graph);
        if let Err(e) = &outcome
            && e.scope == Scope::Stream
        {
            self.broken = Some(e.clone());
        }
        outcome
    }

    /// Counts a run of a graph; with an error, what it fails with.
    fn fail(&mut self, graph: &Translated, err: *mut c::Error) -> Result<Option<Damage>, i32> {
        let mut damage = None;
        // SAFETY: `err` is the host's.
        let code = unsafe {
            guard(err, || {
                damage = self.rule("compute", Some(&graph.view()))?;
                Ok(())
            })
        };
        if code == 0 { Ok(damage) } else { Err(code) }
    }
}

impl Shell {
    /// Waits for the wrapped stream.
    fn wait(&self, err: *mut c::Error) -> i32 {
        // SAFETY: a live backend, used by this thread.
        self.inner_vt.synchronize.map_or(0, |f| unsafe { f(self.inner, err) })
    }

    /// Damages a result of a graph that was run.
    fn damage(&self, graph: &Translated, how: Damage, err: *mut c::Error) -> i32 {
        let code = self.wait(err);
        let mut nodes = graph.view().nodes().collect::<Vec<_>>();
        nodes.retain(|node| how.op.is_none_or(|op| node.op_id() == op));
        if let Some(node) = nodes.last().filter(|_| code == 0) {
            // SAFETY: a tensor of the graph, and the stream is idle.
            unsafe { buffer::damage(node.dst().raw(), how) };
        }
        code
    }
}

// In every function below `be` came from `wrap` and is used by one thread at a time; graphs, tensors, ranges, plans and
// events were checked by the host, which keeps graphs until the stream was synchronised or the plan destroyed.

unsafe extern "C" fn destroy(be: *mut c::Backend) {
    // SAFETY: see above; the host destroys once. The graphs go after the stream that may use them.
    unsafe {
        let shell = Box::from_raw(be.cast::<Shell>());
        if let Some(destroy) = shell.inner_vt.destroy {
            destroy(shell.inner);
        }
    }
}

unsafe extern "C" fn synchronize(be: *mut c::Backend, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe {
        let code = pass_on!(shell(be), err, synchronize());
        if code == 0 {
            shell(be).in_flight.clear();
        }
        code
    }
}

unsafe extern "C" fn compute(be: *mut c::Backend, graph: *const c::Graph, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe {
        let shell = shell(be);
        let graph = Translated::new(graph);
        let damage = match shell.faults.fail(&graph, err) {
            Ok(damage) => damage,
            Err(code) => return code,
        };
        let Some(compute) = shell.inner_vt.compute else { return Status::Unsupported.code() };
        let mut code = compute(shell.inner, graph.as_ptr(), err);
        if let Some(damage) = damage.filter(|_| code == 0) {
            code = shell.damage(&graph, damage, err);
        }
        shell.in_flight.push(graph);
        code
    }
}

unsafe extern "C" fn plan_compute(
    be: *mut c::Backend,
    plan: *mut c::Plan,
    run_id: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        let shell = shell(be);
        let Some(graph) = shell.plans.get(&plan) else { return Status::Invalid.code() };
        let damage = match shell.faults.fail(graph, err) {
            Ok(damage) => damage,
            Err(code) => return code,
        };
        let Some(plan_compute) = shell.inner_vt.plan_compute else { return Status::Unsupported.code() };
        let code = plan_compute(shell.inner, plan, run_id, err);
        match damage.filter(|_| code == 0) {
            Some(damage) => shell.damage(graph, damage, err),
            None => code,
        }
    }
}

unsafe extern "C" fn plan_create(
    be: *mut c::Backend,
    graph: *const c::Graph,
    out: *mut *mut c::Plan,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        let graph = Translated::new(graph);
        let code = pass_on!(shell(be), err, plan_create(graph.as_ptr(), out));
        if code == 0 && !(*out).is_null() {
            shell(be).plans.insert(*out, graph);
        } else {
            shell(be).in_flight.push(graph);
        }
        code
    }
}

unsafe extern "C" fn plan_update(
    be: *mut c::Backend,
    plan: *mut c::Plan,
    graph: *const c::Graph,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        let shell = shell(be);
        let graph = Translated::new(graph);
        let Some(plan_update) = shell.inner_vt.plan_update else { return Status::Unsupported.code() };
        let code = plan_update(shell.inner, plan, graph.as_ptr(), err);
        if code == 0 {
            shell.plans.insert(plan, graph);
        }
        code
    }
}

unsafe extern "C" fn plan_destroy(be: *mut c::Backend, plan: *mut c::Plan) {
    // SAFETY: see above; the host destroys once.
    unsafe {
        if let Some(plan_destroy) = shell(be).inner_vt.plan_destroy {
            plan_destroy(shell(be).inner, plan);
        }
        shell(be).plans.remove(&plan);
    }
}

unsafe extern "C" fn set_async(
    be: *mut c::Backend,
    t: *const c::Tensor,
    src: *const c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { pass_on!(shell(be), err, set_async(&tensor(t), src, off, n)) }
}

unsafe extern "C" fn get_async(
    be: *mut c::Backend,
    t: *const c::Tensor,
    dst: *mut c_void,
    off: u64,
    n: u64,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe { pass_on!(shell(be), err, get_async(&tensor(t), dst, off, n)) }
}

unsafe extern "C" fn copy_async(
    dst_be: *mut c::Backend,
    src_be: *mut c::Backend,
    dst: *const c::Tensor,
    src: *const c::Tensor,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; both are of this plugin, so both are wrapped.
    unsafe {
        let from = (*src_be.cast::<Shell>()).inner;
        pass_on!(shell(dst_be), err, copy_async(from, &tensor(dst), &tensor(src)))
    }
}

unsafe extern "C" fn event_record(be: *mut c::Backend, event: *mut c::Event, err: *mut c::Error) -> i32 {
    // SAFETY: see above; events are not wrapped.
    unsafe { pass_on!(shell(be), err, event_record(event)) }
}

unsafe extern "C" fn event_wait(be: *mut c::Backend, event: *mut c::Event, err: *mut c::Error) -> i32 {
    // SAFETY: see above; events are not wrapped.
    unsafe { pass_on!(shell(be), err, event_wait(event)) }
}

unsafe extern "C" fn native_handle(be: *mut c::Backend) -> *mut c_void {
    // SAFETY: see above.
    unsafe { shell(be).inner_vt.native_handle.map_or(std::ptr::null_mut(), |f| f(shell(be).inner)) }
}
