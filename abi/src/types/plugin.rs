//! The two tables of the contract: the plugin's, and the host's functions for plugins.

use super::{Device, Error, Graph, Str, Tensor, TypeInfo};
use core::ffi::c_void;

/// Returned by `llmrt_plugin_query_v0`: read-only data of the plugin.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Plugin {
    /// [`crate::MAGIC`].
    pub magic: u64,
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// [`crate::ABI_MAJOR`] the plugin was built with.
    pub abi_major: u16,
    /// [`crate::ABI_MINOR`] the plugin was built with.
    pub abi_minor: u16,
    /// [`crate::layout::FINGERPRINT`] the plugin was built with. It covers the fields that structs had at first, not those
    /// appended later, so a host compares it for equality: a difference is another layout, never another minor.
    pub fingerprint: u64,
    /// `LLMRT_BUILD_*` bits.
    pub build_flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Host features the plugin requires: `LLMRT_NEEDS_*` bits.
    pub needs_host: u64,
    /// **M** Name: lower case, digits, `_` and `-`; equals the manifest's.
    pub name: Str,
    /// **M** Version; equals the manifest's.
    pub version: Str,
    /// Its vendor.
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

/// Functions of the host for plugins. Valid from `init` to the end of `shutdown`; any thread may call them. Fields marked
/// **M** are never NULL; a field that a later minor appends may be, and exists only if `struct_size` covers it.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct HostApi {
    /// Size of this struct in the host's build.
    pub struct_size: u32,
    /// [`crate::ABI_MINOR`] of the host.
    pub abi_minor: u32,
    /// First argument of every function below.
    pub ctx: *mut c_void,
    /// **M** Levels: 1 error, 2 warn, 3 info, 4 debug, 5 trace.
    pub log: Option<unsafe extern "C" fn(ctx: *mut c_void, level: u32, target: Str, msg: Str)>,
    /// **M** Copies an option's text to `buf`; `len` receives its whole length. `Unsupported` if it is not set.
    pub get_option: Option<
        unsafe extern "C" fn(ctx: *mut c_void, key: Str, buf: *mut u8, cap: u64, len: *mut u64) -> i32,
    >,
    /// **M** Describes a dtype.
    pub type_info: Option<unsafe extern "C" fn(ctx: *mut c_void, dtype: u32, out: *mut TypeInfo) -> i32>,
    /// **M** Registers a custom op; only within `init`.
    pub register_op: Option<unsafe extern "C" fn(ctx: *mut c_void, desc: *const OpDesc, id: *mut u32) -> i32>,
    /// **M** Finds a custom op by name.
    pub find_op: Option<unsafe extern "C" fn(ctx: *mut c_void, name: Str, version: u32, id: *mut u32) -> i32>,
    /// **M** 1 when the run with this id was cancelled.
    pub cancelled: Option<unsafe extern "C" fn(ctx: *mut c_void, run_id: u64) -> u32>,
    /// **M** `llmrt.host.threads` gives [`HostThreads`]; unknown names give NULL.
    pub get_extension:
        Option<unsafe extern "C" fn(ctx: *mut c_void, name: Str, version: u32) -> *const c_void>,
}

/// Extension `llmrt.host.threads`, version 1: the process's one thread pool.
#[repr(C)]
// abi_stable has no support for functions that take a function.
pub struct HostThreads {
    /// Size of this struct in the host's build.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// First argument of the functions below.
    pub ctx: *mut c_void,
    /// **M** Threads in the pool, the caller included.
    pub n_threads: Option<unsafe extern "C" fn(ctx: *mut c_void) -> u32>,
    /// **M** Runs `body(arg, team, i, n)` for i in 0..n on a team of n threads, the caller being one; returns when all have
    /// left the body, which must not unwind. `Invalid`, with nothing run, if n is 0 or more than `n_threads`. It is called
    /// within a call of the host or within a body, never from a thread of the plugin's own. Runs of several streams at
    /// once take turns: the pool has one team at a time (n = 1 runs at once, on the caller). A run within a body is
    /// correct but slow: its team are threads started for it.
    pub run: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            n: u32,
            body: Option<unsafe extern "C" fn(arg: *mut c_void, team: *mut c_void, i: u32, n: u32)>,
            arg: *mut c_void,
        ) -> i32,
    >,
    /// **M** Waits until every thread of the team has arrived here or has left the body; `team` is the body's own.
    pub barrier: Option<unsafe extern "C" fn(team: *mut c_void)>,
}

/// A custom op.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct OpDesc {
    /// Size of this struct in the plugin's build.
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
    /// Params as text, for display.
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
