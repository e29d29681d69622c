//! Extension `llmrt.collective`: results of several devices put together by the devices.

use super::{Backend, Device, Error, Tensor};
use core::ffi::c_void;

/// Devices that put their results together; the plugin's own.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Group {
    /// The plugin's own.
    pub imp: *mut c_void,
}

/// Extension `llmrt.collective`, version 0, of a plugin. A call covers every rank: arrays have one row per device of the
/// group, in its order, and the work is enqueued on `backends[i]`, a stream of device i, after what it has and before what
/// follows. Tensors have no gaps and equal dtypes and shapes, except where stated. Results have equal bits on
/// all devices and in every run. After an error that reaches farther than its call, each of the streams is of no use.
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct CollectiveVt {
    /// Size of this struct in the plugin's build.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// **M** A group of `n` open devices of this plugin, no two the same; may take seconds, and memory of each.
    /// `Unsupported`, with the reason, where they have no way to each other.
    pub group_create: Option<
        unsafe extern "C" fn(
            devices: *const *mut Device,
            n: u32,
            out: *mut *mut Group,
            err: *mut Error,
        ) -> i32,
    >,
    /// **M** Frees a group none of whose work is in flight; its devices are open.
    pub group_destroy: Option<unsafe extern "C" fn(group: *mut Group)>,
    /// **M** Each `dst[i]` becomes the sum of all `src` (F32); `dst[i]` may be `src[i]`.
    pub all_reduce: Option<
        unsafe extern "C" fn(
            group: *mut Group,
            backends: *const *mut Backend,
            src: *const *const Tensor,
            dst: *const *const Tensor,
            err: *mut Error,
        ) -> i32,
    >,
    /// Each row of dim 0 of each `dst[i]` becomes the same row of all `src`, one after the other: `ne[0]` of `dst` is the
    /// group's size times that of `src`. F32.
    pub all_gather: Option<
        unsafe extern "C" fn(
            group: *mut Group,
            backends: *const *mut Backend,
            src: *const *const Tensor,
            dst: *const *const Tensor,
            err: *mut Error,
        ) -> i32,
    >,
    /// Each tensor becomes a copy of `tensors[root]`. Any dtype.
    pub broadcast: Option<
        unsafe extern "C" fn(
            group: *mut Group,
            backends: *const *mut Backend,
            root: u32,
            tensors: *const *const Tensor,
            err: *mut Error,
        ) -> i32,
    >,
}
