//! Streams of work, events between them, plans, and scratch memory.

use super::{Error, Graph, Tensor};
use core::ffi::c_void;

/// Parameters of a stream.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct BackendParams {
    /// Size of this struct in the host's build.
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// Smaller runs earlier; 0 is normal.
    pub priority: i32,
    /// Threads of the host's pool to use; 0: all.
    pub n_threads: u32,
    /// Scratch pool of the host, or NULL.
    pub scratch: *const Pool,
    /// A stream of the vendor's library to work on, or NULL.
    pub native_stream: *mut c_void,
}

/// A stream of work on a device; one thread at a time, any thread.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Backend {
    /// **M**
    pub vt: *const BackendVt,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// A kept graph; the plugin's own.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Plan {
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Functions of a stream.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct BackendVt {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M** Waits, then frees.
    pub destroy: Option<unsafe extern "C" fn(be: *mut Backend)>,
    /// **M** Waits for everything enqueued; returns the sticky asynchronous error.
    pub synchronize: Option<unsafe extern "C" fn(be: *mut Backend, err: *mut Error) -> i32>,
    /// **M** Enqueues the graph; may block. The graph stays valid until synchronised. A result never shares memory with
    /// the sources of its node, except where the op writes into a source (`set_rows`, `cpy`).
    pub compute: Option<unsafe extern "C" fn(be: *mut Backend, graph: *const Graph, err: *mut Error) -> i32>,
    /// Like [`BufferVt::set`], in stream order; the source stays valid until an event or synchronise.
    pub set_async: Option<
        unsafe extern "C" fn(
            be: *mut Backend,
            tensor: *const Tensor,
            src: *const c_void,
            off: u64,
            n: u64,
            err: *mut Error,
        ) -> i32,
    >,
    /// Like [`BufferVt::get`], in stream order.
    pub get_async: Option<
        unsafe extern "C" fn(
            be: *mut Backend,
            tensor: *const Tensor,
            dst: *mut c_void,
            off: u64,
            n: u64,
            err: *mut Error,
        ) -> i32,
    >,
    /// Copies a tensor from another backend's device; `Unsupported` for a foreign peer.
    pub copy_async: Option<
        unsafe extern "C" fn(
            dst_be: *mut Backend,
            src_be: *mut Backend,
            dst: *const Tensor,
            src: *const Tensor,
            err: *mut Error,
        ) -> i32,
    >,
    /// Marks everything enqueued so far.
    pub event_record:
        Option<unsafe extern "C" fn(be: *mut Backend, event: *mut Event, err: *mut Error) -> i32>,
    /// Later work waits for the event.
    pub event_wait: Option<unsafe extern "C" fn(be: *mut Backend, event: *mut Event, err: *mut Error) -> i32>,
    /// Prepares a graph to be run often; the graph stays valid until the plan is destroyed.
    pub plan_create: Option<
        unsafe extern "C" fn(
            be: *mut Backend,
            graph: *const Graph,
            out: *mut *mut Plan,
            err: *mut Error,
        ) -> i32,
    >,
    /// Only bindings moved; `PlanStale` if the plan must be created again.
    pub plan_update: Option<
        unsafe extern "C" fn(be: *mut Backend, plan: *mut Plan, graph: *const Graph, err: *mut Error) -> i32,
    >,
    /// Enqueues a plan.
    pub plan_compute:
        Option<unsafe extern "C" fn(be: *mut Backend, plan: *mut Plan, run_id: u64, err: *mut Error) -> i32>,
    /// Frees a plan that is not running.
    pub plan_destroy: Option<unsafe extern "C" fn(be: *mut Backend, plan: *mut Plan)>,
    /// The vendor library's stream, or NULL.
    pub native_handle: Option<unsafe extern "C" fn(be: *mut Backend) -> *mut c_void>,
}

/// A synchronisation point between streams and with the host; re-recordable, binary.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Event {
    /// **M**
    pub vt: *const EventVt,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Functions of an event; any thread.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct EventVt {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M**
    pub destroy: Option<unsafe extern "C" fn(event: *mut Event)>,
    /// **M** `Ok`, `NotReady`, or the stream's error. An event never recorded is `Ok`.
    pub query: Option<unsafe extern "C" fn(event: *mut Event, err: *mut Error) -> i32>,
    /// **M** `NotReady` after the time has passed.
    pub wait: Option<unsafe extern "C" fn(event: *mut Event, timeout_ns: u64, err: *mut Error) -> i32>,
}

/// Scratch memory managed by the host, for use inside `compute` and `plan_*`, in stream order: a freed piece may be
/// handed out again at once. Both functions are never NULL. Pieces of kind 1 are freed in the reverse order of their allocation. While a stream has plans,
/// no memory goes back to the device, so a plan may keep addresses.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Pool {
    /// Size of this struct in the host's build.
    pub struct_size: u32,
    /// 0 legacy, 1 VMM.
    pub kind: u32,
    /// First argument.
    pub ctx: *mut c_void,
    /// **M** Address, a multiple of `align` (a power of two, or 0), and true size, which is passed to `free` again.
    pub alloc: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            size: u64,
            align: u64,
            addr: *mut u64,
            actual: *mut u64,
        ) -> i32,
    >,
    /// **M** Frees a piece of `alloc`.
    pub free: Option<unsafe extern "C" fn(ctx: *mut c_void, addr: u64, actual: u64)>,
}
