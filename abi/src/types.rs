//! Objects and function tables, as they cross the ABI.
//!
//! Rules for every struct: fixed-width fields, no implicit padding (checked in [`crate::layout`]), reserved fields
//! zero, `struct_size` first where a struct may grow. Fields marked **M** are mandatory; the host installs a stub for
//! the others. Calls return a [`crate::Status`] number; `err` may be NULL and is owned by the caller.

use core::ffi::c_void;

/// Borrowed UTF-8 text, not NUL-terminated.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Str {
    /// First byte; may be NULL when `len` is 0.
    pub ptr: *const u8,
    /// Bytes.
    pub len: u64,
}

/// What went wrong, in memory of the caller; nothing to free. 256 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Error {
    /// Set by the caller.
    pub struct_size: u32,
    /// A [`crate::Status`] number.
    pub code: i32,
    /// A [`crate::Scope`] number: what is still usable.
    pub scope: u32,
    /// The vendor library's own code, or 0.
    pub vendor_code: i32,
    /// Node of the graph that failed, or `UINT32_MAX`.
    pub node_index: u32,
    /// Bytes of `msg` in use.
    pub msg_len: u32,
    /// For out-of-memory codes.
    pub bytes_requested: u64,
    /// For out-of-memory codes.
    pub bytes_available: u64,
    /// UTF-8, not NUL-terminated.
    pub msg: [u8; 216],
}

/// What `llmrt_plugin_query_v0` returns: read-only data of the plugin.
#[repr(C)]
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

/// Answer of [`HostApi::type_info`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TypeInfo {
    /// Set by the caller.
    pub struct_size: u32,
    /// The dtype's number.
    pub id: u32,
    /// Elements in a block.
    pub block_elems: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bit 0: quantised. Bit 1: integer.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Its name.
    pub name: Str,
}

/// A custom op.
#[repr(C)]
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

/// A device: created in `init`, lives until `shutdown`.
#[repr(C)]
pub struct Device {
    /// **M**
    pub vt: *const DeviceVt,
    /// **M**
    pub info: *const DeviceInfo,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// What a device is: data, not getters.
#[repr(C)]
pub struct DeviceInfo {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// `LLMRT_DEVICE_*`: 0 CPU, 1 GPU, 2 IGPU, 3 NPU, 4 ACCEL.
    pub kind: u32,
    /// `LLMRT_CAP_*` bits.
    pub caps: u64,
    /// **M** Unique among the plugin's devices.
    pub name: Str,
    /// For people: the marketing name.
    pub description: Str,
    /// Chip or instruction set.
    pub arch: Str,
    /// `dddd:bb:dd.f`, or empty.
    pub pci_id: Str,
    /// All zero when unknown.
    pub uuid: [u8; 16],
    /// Bytes.
    pub memory_total: u64,
    /// Rows of `buffer_types`.
    pub n_buffer_types: u32,
    /// Bytes between rows of `buffer_types`.
    pub bt_stride: u32,
    /// **M** At least one; index 0 is the default for tensors.
    pub buffer_types: *const BufferType,
}

/// A kind of memory of a device.
#[repr(C)]
pub struct BufferType {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// Its row.
    pub index: u32,
    /// `LLMRT_BUFFER_*`: 0 DEVICE, 1 HOST_PINNED, 2 HOST, 3 MANAGED, 4 REPACKED.
    pub kind: u32,
    /// `LLMRT_BT_*` bits.
    pub flags: u32,
    /// Power of two; tensor offsets are multiples of it.
    pub alignment: u64,
    /// Largest buffer in bytes; 0: no limit.
    pub max_size: u64,
    /// For people.
    pub name: Str,
}

/// Functions of a device; thread-safe after `open`.
#[repr(C)]
pub struct DeviceVt {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M** Creates contexts; must be called before any other function.
    pub open: Option<unsafe extern "C" fn(dev: *mut Device, err: *mut Error) -> i32>,
    /// **M** After all buffers, backends and events are destroyed.
    pub close: Option<unsafe extern "C" fn(dev: *mut Device)>,
    /// **M** Free and total bytes.
    pub memory: Option<
        unsafe extern "C" fn(dev: *mut Device, free: *mut u64, total: *mut u64, err: *mut Error) -> i32,
    >,
    /// **M** Verdicts for nodes `first..first+n`; pure and deterministic. Tensors may have no buffer yet.
    pub supports: Option<
        unsafe extern "C" fn(
            dev: *mut Device,
            graph: *const Graph,
            first: u32,
            n: u32,
            verdicts: *mut Verdict,
            err: *mut Error,
        ) -> i32,
    >,
    /// **M** Memory of a buffer type. `usage`: 0 any, 1 weights, 2 compute, 3 state.
    pub buffer_alloc: Option<
        unsafe extern "C" fn(
            dev: *mut Device,
            bt: u32,
            size: u64,
            usage: u32,
            out: *mut *mut Buffer,
            err: *mut Error,
        ) -> i32,
    >,
    /// **M** A stream of work.
    pub backend_create: Option<
        unsafe extern "C" fn(
            dev: *mut Device,
            params: *const BackendParams,
            out: *mut *mut Backend,
            err: *mut Error,
        ) -> i32,
    >,
    /// Bytes a tensor takes in a buffer type; at least `nbytes`.
    pub alloc_size: Option<unsafe extern "C" fn(dev: *mut Device, bt: u32, tensor: *const Tensor) -> u64>,
    /// 1 when this device can use buffers of another device's buffer type in place.
    pub accepts: Option<unsafe extern "C" fn(dev: *mut Device, owner: *const Device, bt: u32) -> u32>,
    /// A synchronisation point.
    pub event_create: Option<
        unsafe extern "C" fn(dev: *mut Device, flags: u32, out: *mut *mut Event, err: *mut Error) -> i32,
    >,
    /// Makes a buffer of host memory that the caller keeps alive. Flag bit 0: read-only.
    pub import_host: Option<
        unsafe extern "C" fn(
            dev: *mut Device,
            ptr: *mut c_void,
            n: u64,
            flags: u32,
            out: *mut *mut Buffer,
            err: *mut Error,
        ) -> i32,
    >,
}

/// Memory of a device.
#[repr(C)]
pub struct Buffer {
    /// **M**
    pub vt: *const BufferVt,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Functions of a buffer.
#[repr(C)]
pub struct BufferVt {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M**
    pub destroy: Option<unsafe extern "C" fn(buf: *mut Buffer)>,
    /// **M** Writes `n` bytes at `off` of the tensor; canonical (GGUF) bytes. Done when it returns.
    pub set: Option<
        unsafe extern "C" fn(
            buf: *mut Buffer,
            tensor: *const Tensor,
            src: *const c_void,
            off: u64,
            n: u64,
            err: *mut Error,
        ) -> i32,
    >,
    /// **M** Reads `n` bytes at `off` of the tensor.
    pub get: Option<
        unsafe extern "C" fn(
            buf: *mut Buffer,
            tensor: *const Tensor,
            dst: *mut c_void,
            off: u64,
            n: u64,
            err: *mut Error,
        ) -> i32,
    >,
    /// **M** Sets bytes `off..off+n` of the buffer.
    pub fill:
        Option<unsafe extern "C" fn(buf: *mut Buffer, off: u64, n: u64, byte: u8, err: *mut Error) -> i32>,
    /// After the last byte of a weight: the plugin may change its layout, once, and says which it made.
    pub seal: Option<
        unsafe extern "C" fn(
            buf: *mut Buffer,
            tensor: *const Tensor,
            layout: *mut Layout,
            err: *mut Error,
        ) -> i32,
    >,
    /// Device-side copy between tensors of two buffers; `Unsupported` if it cannot.
    pub copy: Option<
        unsafe extern "C" fn(
            dst_buf: *mut Buffer,
            dst: *const Tensor,
            src_buf: *mut Buffer,
            src: *const Tensor,
            err: *mut Error,
        ) -> i32,
    >,
    /// Address the CPU may read and write, or NULL.
    pub host_ptr: Option<unsafe extern "C" fn(buf: *mut Buffer) -> *mut c_void>,
}

/// How to make a stream.
#[repr(C)]
pub struct BackendParams {
    /// Size of this struct as the host knows it.
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
pub struct Backend {
    /// **M**
    pub vt: *const BackendVt,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// A kept graph; the plugin's own.
#[repr(C)]
pub struct Plan {
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Functions of a stream.
#[repr(C)]
pub struct BackendVt {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M** Waits, then frees.
    pub destroy: Option<unsafe extern "C" fn(be: *mut Backend)>,
    /// **M** Waits for everything enqueued; returns the sticky asynchronous error.
    pub synchronize: Option<unsafe extern "C" fn(be: *mut Backend, err: *mut Error) -> i32>,
    /// **M** Enqueues the graph; may block. The graph stays valid until synchronised.
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
    /// Only bindings moved; `PlanStale` if the plan must be made anew.
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
pub struct Event {
    /// **M**
    pub vt: *const EventVt,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Functions of an event; any thread.
#[repr(C)]
pub struct EventVt {
    /// Size of this struct as the plugin knows it.
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

/// A tensor: shape, strides and where its bytes are.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Tensor {
    /// Its row in the graph's table.
    pub id: u32,
    /// A [`crate::DType`] number.
    pub dtype: u32,
    /// `LLMRT_ROLE_*`: what a weight is for.
    pub role: u32,
    /// `LLMRT_TENSOR_*` bits.
    pub flags: u32,
    /// 1 to 4; dims past it have `ne` 1.
    pub n_dims: u32,
    /// Layout made by `seal`; 0: canonical.
    pub layout_id: u32,
    /// Elements per dim, innermost first.
    pub ne: [i64; 4],
    /// Bytes between elements (blocks for dim 0) of a dim.
    pub nb: [u64; 4],
    /// Its memory; NULL while placing.
    pub buffer: *mut Buffer,
    /// First byte in the buffer, views included.
    pub offset: u64,
    /// Bytes from first to past-the-last element.
    pub nbytes: u64,
    /// For views: offset within the viewed tensor.
    pub view_offset: u64,
    /// For views: the viewed tensor's row; `UINT32_MAX` otherwise.
    pub view_src: u32,
    /// Zero.
    pub reserved: u32,
    /// For logs only.
    pub name: Str,
}

/// One operation of a graph.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Node {
    /// A [`crate::Op`] number, or a custom id from 0x80000000.
    pub op: u32,
    /// Version of the op's meaning.
    pub op_version: u32,
    /// Zero.
    pub flags: u32,
    /// Tensor row of the result.
    pub dst: u32,
    /// Tensor rows; `UINT32_MAX` for an optional source left out.
    pub src: *const u32,
    /// Sources.
    pub n_src: u32,
    /// Bytes of `params`.
    pub params_size: u32,
    /// The op's `llmrt_p_*` struct.
    pub params: *const c_void,
}

/// Nodes in execution order and the tensors they name.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Graph {
    /// Size of this struct as the host knows it.
    pub struct_size: u32,
    /// Bytes between rows of `tensors`.
    pub tensor_stride: u32,
    /// Bytes between rows of `nodes`.
    pub node_stride: u32,
    /// Rows of `tensors`.
    pub n_tensors: u32,
    /// Rows of `nodes`.
    pub n_nodes: u32,
    /// Zero.
    pub flags: u32,
    /// Same number: same topology, shapes, dtypes and params.
    pub uid: u64,
    /// Same number: same addresses.
    pub binding_gen: u64,
    /// For [`HostApi::cancelled`].
    pub run_id: u64,
    /// Tensor rows.
    pub tensors: *const Tensor,
    /// Node rows.
    pub nodes: *const Node,
}

/// Answer of `supports` for one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Verdict {
    /// 0 no, 1 yes, 2 only if the operands are here already, 3 wants it even from host memory.
    pub support: u8,
    /// A [`crate::Reason`] number when `support` is 0.
    pub reason: u8,
    /// Equal non-zero numbers on contiguous nodes: executed as one.
    pub fuse_group: u16,
    /// Microseconds; below 0: unknown.
    pub est_us: f32,
    /// Scratch bytes.
    pub workspace: u64,
}

/// What `seal` made of a weight.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Layout {
    /// Set by the caller.
    pub struct_size: u32,
    /// The plugin's number; 0: canonical.
    pub layout_id: u32,
    /// `LLMRT_LAYOUT_*` bits.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Rows that slices must be multiples of.
    pub row_granularity: u64,
    /// For people.
    pub name: Str,
}

/// Scratch memory of the host, for use inside `compute` and `plan_*`.
#[repr(C)]
pub struct Pool {
    /// Size of this struct as the host knows it.
    pub struct_size: u32,
    /// 0 legacy, 1 VMM.
    pub kind: u32,
    /// First argument.
    pub ctx: *mut c_void,
    /// Address and true size.
    pub alloc: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            size: u64,
            align: u64,
            addr: *mut u64,
            actual: *mut u64,
        ) -> i32,
    >,
    /// Gives back what `alloc` gave.
    pub free: Option<unsafe extern "C" fn(ctx: *mut c_void, addr: u64, actual: u64)>,
}

/// Extension `llmrt.devmem`: how a plugin's memory can be reserved and mapped.
#[repr(C)]
pub struct DevmemVt {
    /// Size of this struct as the plugin knows it.
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// Bytes of a mapping unit.
    pub granularity: u64,
    /// Largest reservation.
    pub va_limit: u64,
    /// Plain device memory.
    pub raw_alloc:
        Option<unsafe extern "C" fn(dev: *mut Device, size: u64, addr: *mut u64, err: *mut Error) -> i32>,
    /// Frees it.
    pub raw_free: Option<unsafe extern "C" fn(dev: *mut Device, addr: u64)>,
    /// Reserves addresses.
    pub va_reserve:
        Option<unsafe extern "C" fn(dev: *mut Device, size: u64, addr: *mut u64, err: *mut Error) -> i32>,
    /// Puts memory behind addresses.
    pub va_map: Option<
        unsafe extern "C" fn(dev: *mut Device, addr: u64, n: u64, chunk: *mut u64, err: *mut Error) -> i32,
    >,
    /// Takes it away.
    pub va_unmap: Option<unsafe extern "C" fn(dev: *mut Device, addr: u64, n: u64, chunk: u64)>,
    /// Gives addresses back.
    pub va_release: Option<unsafe extern "C" fn(dev: *mut Device, addr: u64, size: u64)>,
}

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident : $ty:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $ty = $value;)*
        /// Flag and enumeration constants: name without `LLMRT_`, value. The header is written from this.
        pub const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

constants! {
    /// Built with the address sanitiser.
    BUILD_ASAN: u32 = 1;
    /// Built with the thread sanitiser.
    BUILD_TSAN: u32 = 2;
    /// Built without optimisation.
    BUILD_DEBUG: u32 = 4;
    /// A panic ends the process.
    BUILD_PANIC_ABORT: u32 = 8;
    /// The plugin cannot work without `llmrt.host.threads`.
    NEEDS_THREADS: u64 = 1;
    /// Main processor.
    DEVICE_CPU: u32 = 0;
    /// Graphics processor with its own memory.
    DEVICE_GPU: u32 = 1;
    /// Graphics processor in main memory.
    DEVICE_IGPU: u32 = 2;
    /// Neural processor.
    DEVICE_NPU: u32 = 3;
    /// Anything else that computes.
    DEVICE_ACCEL: u32 = 4;
    /// `compute` returns before the work is done.
    CAP_ASYNC: u64 = 1;
    /// Has events.
    CAP_EVENTS: u64 = 2;
    /// Has plans of its own.
    CAP_PLAN: u64 = 4;
    /// Reads host memory in place: `import_host` works.
    CAP_HOST_READ: u64 = 8;
    /// Copies from peers.
    CAP_P2P: u64 = 16;
    /// Has `llmrt.devmem`.
    CAP_VMM: u64 = 32;
    /// Device memory.
    BUFFER_DEVICE: u32 = 0;
    /// Page-locked host memory.
    BUFFER_HOST_PINNED: u32 = 1;
    /// Host memory.
    BUFFER_HOST: u32 = 2;
    /// Memory both sides see.
    BUFFER_MANAGED: u32 = 3;
    /// Weights in a layout of the plugin's own.
    BUFFER_REPACKED: u32 = 4;
    /// `set` on disjoint ranges from several threads.
    BT_CONCURRENT_SET: u32 = 1;
    /// Only weights may live here.
    BT_WEIGHTS_ONLY: u32 = 2;
    /// `host_ptr` gives an address.
    BT_HOST_PTR: u32 = 4;
    /// `seal` may change layouts.
    BT_MAY_TRANSFORM: u32 = 8;
    /// Any use.
    USAGE_ANY: u32 = 0;
    /// Weights.
    USAGE_WEIGHTS: u32 = 1;
    /// Intermediate results.
    USAGE_COMPUTE: u32 = 2;
    /// State kept between runs.
    USAGE_STATE: u32 = 3;
    /// Read-only host memory.
    IMPORT_READ_ONLY: u32 = 1;
    /// Set by the host before each run.
    TENSOR_INPUT: u32 = 1;
    /// Read by the host after each run.
    TENSOR_OUTPUT: u32 = 2;
    /// Never changes.
    TENSOR_WEIGHT: u32 = 4;
    /// Kept between runs.
    TENSOR_STATE: u32 = 8;
    /// Not said.
    ROLE_OTHER: u32 = 0;
    /// Left operand of `mul_mat`.
    ROLE_MATRIX: u32 = 1;
    /// Table of `get_rows`.
    ROLE_EMBEDDING: u32 = 2;
    /// Norm weight.
    ROLE_NORM: u32 = 3;
    /// Added to rows.
    ROLE_BIAS: u32 = 4;
    /// Left operand of `mul_mat_id`.
    ROLE_EXPERTS: u32 = 5;
    /// K cache.
    ROLE_K_CACHE: u32 = 6;
    /// V cache.
    ROLE_V_CACHE: u32 = 7;
    /// `get` still returns canonical bytes.
    LAYOUT_INVERTIBLE: u32 = 1;
    /// `get` returns `Unsupported`.
    LAYOUT_OPAQUE: u32 = 2;
    /// Row slices stay meaningful.
    LAYOUT_ROW_SLICEABLE: u32 = 4;
    /// "No tensor": an optional source left out, or not a view.
    NO_TENSOR: u32 = u32::MAX;
}

impl Str {
    /// The empty string.
    pub const EMPTY: Str = Str { ptr: core::ptr::null(), len: 0 };

    /// Borrows static text.
    pub const fn new(text: &'static str) -> Str {
        Str { ptr: text.as_ptr(), len: text.len() as u64 }
    }
}

impl Verdict {
    /// The device runs the node; cost unknown, no scratch.
    pub const YES: Verdict = Verdict { support: 1, reason: 0, fuse_group: 0, est_us: -1.0, workspace: 0 };

    /// The device does not run the node.
    pub const fn no(reason: crate::Reason) -> Verdict {
        Verdict { support: 0, reason: reason.code(), fuse_group: 0, est_us: -1.0, workspace: 0 }
    }
}

impl Error {
    /// An error without content, ready to be passed to a call.
    pub const fn empty() -> Error {
        Error {
            struct_size: core::mem::size_of::<Error>() as u32,
            code: 0,
            scope: 0,
            vendor_code: 0,
            node_index: NO_TENSOR,
            msg_len: 0,
            bytes_requested: 0,
            bytes_available: 0,
            msg: [0; 216],
        }
    }

    /// Puts text into `msg`, cut at a character boundary.
    pub fn set_message(&mut self, text: &str) {
        let mut n = text.len().min(self.msg.len());
        while !text.is_char_boundary(n) {
            n -= 1;
        }
        self.msg[..n].copy_from_slice(&text.as_bytes()[..n]);
        self.msg_len = n as u32;
    }

    /// The bytes of the message, bounded by the array whatever `msg_len` says.
    pub fn message(&self) -> &[u8] {
        &self.msg[..(self.msg_len as usize).min(self.msg.len())]
    }
}
