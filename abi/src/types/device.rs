//! Devices and their memory.

use super::{Backend, BackendParams, Error, Event, Graph, Layout, Str, Tensor, Verdict};
use core::ffi::c_void;

/// A device: created in `init`, lives until `shutdown`.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Device {
    /// **M**
    pub vt: *const DeviceVt,
    /// **M**
    pub info: *const DeviceInfo,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Description of a device: data, not getters.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct DeviceInfo {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// `LLMRT_DEVICE_*`: 0 CPU, 1 GPU, 2 IGPU, 3 NPU, 4 ACCEL.
    pub kind: u32,
    /// `LLMRT_CAP_*` bits.
    pub caps: u64,
    /// **M** Unique among the plugin's devices.
    pub name: Str,
    /// For display: the marketing name.
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
    /// Slots of a block of a paged KV cache that this device's attention prefers, a power of two up to 1024; 0: any.
    pub kv_block_size: u32,
    /// Zero.
    pub reserved: u32,
}

/// A kind of memory of a device.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct BufferType {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// Its row.
    pub index: u32,
    /// `LLMRT_BUFFER_*`: 0 DEVICE, 1 HOST_PINNED, 2 HOST, 3 MANAGED, 4 REPACKED.
    pub kind: u32,
    /// `LLMRT_BT_*` bits.
    pub flags: u32,
    /// Power of two; offsets of tensors that are no views are multiples of it.
    pub alignment: u64,
    /// Largest buffer in bytes; 0: no limit.
    pub max_size: u64,
    /// For display.
    pub name: Str,
}

/// Functions of a device; thread-safe after `open`.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct DeviceVt {
    /// Size of this struct in the plugin's build.
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
    /// **M** Verdicts for nodes `first..first+n`, the first one in `verdicts[0]`; pure and deterministic. Tensors may have
    /// no buffer yet. A node is supported only if its op, version, sources, params, dtypes, layouts, shapes and strides
    /// are all known: what a plugin does not check it must be able to run.
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
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Buffer {
    /// **M**
    pub vt: *const BufferVt,
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Functions of a buffer.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct BufferVt {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M**
    pub destroy: Option<unsafe extern "C" fn(buf: *mut Buffer)>,
    /// **M** Writes `n` bytes at `off` of the tensor; canonical (GGUF) bytes. Done when it returns. `set`, `get`, `fill`,
    /// `seal` and `copy` do not wait for queued work: the host has synchronised every stream that uses these bytes, and
    /// calls them while work on other bytes of the buffer runs or is queued. One of them at a time per buffer; with
    /// `LLMRT_BT_CONCURRENT_SET` several `set` on disjoint ranges. Different buffers: any at once.
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
    /// **M** Reads `n` bytes at `off` of the tensor; done when it returns, and ordered as `set`.
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
    /// After the last byte of a weight: the plugin may change its layout, and describes the new one. The host may write
    /// the weight again later, with `layout_id` 0, and seal it again, which gives it the same layout: all of it, or, of a
    /// weight that seal left canonical, some bytes.
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
    /// Address that the CPU may read and write, or NULL. The bytes there of canonical tensors are those that `get` returns.
    pub host_ptr: Option<unsafe extern "C" fn(buf: *mut Buffer) -> *mut c_void>,
}

/// Extension `llmrt.devmem`: how a plugin's memory can be reserved and mapped.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct DevmemVt {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// Bytes of a mapping unit, a power of two; 0: no virtual memory, and the functions `va_*` are NULL.
    pub granularity: u64,
    /// Largest reservation; 0: unknown.
    pub va_limit: u64,
    /// **M** Plain device memory.
    pub raw_alloc:
        Option<unsafe extern "C" fn(dev: *mut Device, size: u64, addr: *mut u64, err: *mut Error) -> i32>,
    /// **M** Frees it, after the work enqueued so far.
    pub raw_free: Option<unsafe extern "C" fn(dev: *mut Device, addr: u64)>,
    /// Reserves addresses.
    pub va_reserve:
        Option<unsafe extern "C" fn(dev: *mut Device, size: u64, addr: *mut u64, err: *mut Error) -> i32>,
    /// Maps memory to `n` reserved addresses, whole units; returns a handle of it.
    pub va_map: Option<
        unsafe extern "C" fn(dev: *mut Device, addr: u64, n: u64, chunk: *mut u64, err: *mut Error) -> i32,
    >,
    /// Unmaps it, after the work enqueued so far.
    pub va_unmap: Option<unsafe extern "C" fn(dev: *mut Device, addr: u64, n: u64, chunk: u64)>,
    /// Releases the addresses; nothing is mapped there any more.
    pub va_release: Option<unsafe extern "C" fn(dev: *mut Device, addr: u64, size: u64)>,
}
