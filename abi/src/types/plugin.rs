//! The two ends of the contract: what a plugin gives the host, and what the host offers a plugin.

use super::{Device, Error, Graph, Str, Tensor, TypeInfo};
use core::ffi::c_void;

/// What `llmrt_plugin_query_v0` returns: read-only data of the plugin.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Plugin {
    /// [`crate::MAGIC`].
    pub magic: u64,
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// [`crate::ABI_MAJOR`] the plugin was built with.
    pub abi_major: u16,
    /// [`crate::ABI_MINOR`] the plugin was built with.
    pub abi_minor: u16,
    /// [`crate::layout::FINGERPRINT`] the plugin was built with.
    pub fingerprint: u64,
    /// `LLMRT_BUILD_*` bits.
    pub build_flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Host features the plugin cannot do without: `LLMRT_NEEDS_*` bits.
    pub needs_host: u64,
    /// **M** Name: lower case, digits, `_` and `-`; equals the manifest's.
    pub name: Str,
    /// **M** Version; equals the manifest's.
    pub version: Str,
    /// Who made it.
    pub vendor: Str,
    /// **M** Enumerates devices; creates no context and takes no device memory. The array lives until `shutdown`.
    pub init: Option<
        unsafe extern "C" fn(
            host: *const HostApi,
            devices: *mut *const *mut Device,
            n: *mut u32,
            err: *mut Error,
        ) -> i32,
    >,
    /// **M** Frees everything; called once, from the main thread, after all objects are destroyed.
    pub shutdown: Option<unsafe extern "C" fn()>,
    /// Extension tables by name and version; unknown names give NULL.
    pub get_extension: Option<unsafe extern "C" fn(name: Str, version: u32) -> *const c_void>,
}

/// What the host offers a plugin. Valid from `init` to the end of `shutdown`.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct HostApi {
    /// Size of this struct as the host knows it.
    pub struct_size: u32,
    /// [`crate::ABI_MINOR`] of the host.
    pub abi_minor: u32,
    /// First argument of every function below.
    pub ctx: *mut c_void,
    /// Levels: 1 error, 2 warn, 3 info, 4 debug, 5 trace.
    pub log: Option<unsafe extern "C" fn(ctx: *mut c_void, level: u32, target: Str, msg: Str)>,
    /// Copies an option's text to `buf`; `len` receives its whole length. `Unsupported` if it is not set.
    pub get_option: Option<
        unsafe extern "C" fn(ctx: *mut c_void, key: Str, buf: *mut u8, cap: u64, len: *mut u64) -> i32,
    >,
    /// Describes a dtype.
    pub type_info: Option<unsafe extern "C" fn(ctx: *mut c_void, dtype: u32, out: *mut TypeInfo) -> i32>,
    /// Registers a custom op; only within `init`.
    pub register_op: Option<unsafe extern "C" fn(ctx: *mut c_void, desc: *const OpDesc, id: *mut u32) -> i32>,
    /// Finds a custom op by name.
    pub find_op: Option<unsafe extern "C" fn(ctx: *mut c_void, name: Str, version: u32, id: *mut u32) -> i32>,
    /// 1 when the run with this id was cancelled.
    pub cancelled: Option<unsafe extern "C" fn(ctx: *mut c_void, run_id: u64) -> u32>,
    /// `llmrt.host.threads` gives [`HostThreads`]; unknown names give NULL.
    pub get_extension:
        Option<unsafe extern "C" fn(ctx: *mut c_void, name: Str, version: u32) -> *const c_void>,
}

/// Extension `llmrt.host.threads`, version 1: the process's one thread pool.
#[repr(C)]
// abi_stable knows no function that takes a function.
pub struct HostThreads {
    /// Size of this struct as the host knows it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// First argument of the functions below.
    pub ctx: *mut c_void,
    /// Threads in the pool, the caller included.
    pub n_threads: Option<unsafe extern "C" fn(ctx: *mut c_void) -> u32>,
    /// Runs `body(arg, team, i, n)` for i in 0..n on a team of n threads, the caller being one; returns when all did.
    /// n is at most `n_threads`. The body must not unwind.
    pub run: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            n: u32,
            body: Option<unsafe extern "C" fn(arg: *mut c_void, team: *mut c_void, i: u32, n: u32)>,
            arg: *mut c_void,
        ) -> i32,
    >,
    /// Waits until every thread of the team has come here or has left the body.
    pub barrier: Option<unsafe extern "C" fn(team: *mut c_void)>,
}

/// A custom op.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct OpDesc {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// Version of its meaning.
    pub version: u32,
    /// Bit 0: idempotent. Bit 1: pinned (no reference: needs the plugin).
    pub flags: u32,
    /// Fewest sources.
    pub min_src: u32,
    /// Most sources.
    pub max_src: u32,
    /// Zero.
    pub reserved: u32,
    /// `vendor.op`.
    pub name: Str,
    /// Params as text, for people.
    pub schema: Str,
    /// Fills the result's dtype and shape.
    pub infer: Option<unsafe extern "C" fn(graph: *const Graph, node: u32, dst: *mut Tensor) -> i32>,
    /// Plain reference on host memory: source and result data pointers.
    pub reference: Option<
        unsafe extern "C" fn(
            graph: *const Graph,
            node: u32,
            src: *const *const c_void,
            dst: *mut c_void,
        ) -> i32,
    >,
}
