//! Plain data: texts, errors, tensors, nodes, graphs, verdicts and layouts.

use super::{Buffer, NO_TENSOR};
use core::ffi::c_void;

/// Borrowed UTF-8 text, not NUL-terminated.
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Str {
    /// First byte; may be NULL when `len` is 0.
    pub ptr: *const u8,
    /// Bytes.
    pub len: u64,
}

/// Details of a failed call, in memory of the caller; nothing to free. 256 bytes. Before every call the caller sets
/// `struct_size`, `node_index` to `LLMRT_NO_TENSOR`, and every other field to 0; a plugin writes what it has to add, and
/// nothing when the call succeeds.
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Error {
    /// Set by the caller.
    pub struct_size: u32,
    /// A [`crate::Status`] number.
    pub code: i32,
    /// A [`crate::Scope`] number: what is still usable.
    pub scope: u32,
    /// The vendor library's own code, or 0.
    pub vendor_code: i32,
    /// Node of the graph that failed. The caller presets `LLMRT_NO_TENSOR`, "no node", which calls without a graph and
    /// failures of no single node leave there.
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

/// Result of [`HostApi::type_info`].
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
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

/// A tensor: shape, strides and where its bytes are.
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Tensor {
    /// Its row in the graph's table. A tensor that is passed without a graph (`alloc_size`, `set`, `get`, `seal`,
    /// `copy` and their asynchronous forms) has `id` 0, `view_src` `LLMRT_NO_TENSOR` and `view_offset` 0, also if it is
    /// a view: `buffer`, `offset`, dims, strides and `layout_id` describe it.
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
    /// Elements per dim, innermost first. A dim of 0 makes the tensor empty: `nbytes` is 0, and a node with an empty
    /// result is no work.
    pub ne: [i64; 4],
    /// Bytes between elements (blocks for dim 0) of a dim: any number, also no multiple of the element's size. A device
    /// refuses those that it cannot do (`LLMRT_REASON_STRIDE`).
    pub nb: [u64; 4],
    /// Its memory; NULL while placing.
    pub buffer: *mut Buffer,
    /// First byte in the buffer, the offset of a view included. Tensors that are no views start at multiples of the
    /// buffer type's alignment; in host memory that was imported, at multiples of 4 (8 if F64 or I64). While `buffer` is
    /// NULL, `offset` counts from the first byte of the tensor that owns the memory: 0 for an owner, `view_offset` for a
    /// view. Alignment checked on it in `supports` therefore holds in `compute`, up to that of the owner.
    pub offset: u64,
    /// Bytes from first to past-the-last element; 0 if there is none.
    pub nbytes: u64,
    /// For views: offset in bytes from the first byte of the viewed tensor.
    pub view_offset: u64,
    /// For views: row of the tensor that owns the memory, which is never a view itself; `LLMRT_NO_TENSOR` otherwise.
    pub view_src: u32,
    /// Zero.
    pub reserved: u32,
    /// For logs only.
    pub name: Str,
}

/// One operation of a graph.
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Node {
    /// A [`crate::Op`] number, or a custom id from 0x80000000.
    pub op: u32,
    /// Version of the op's meaning.
    pub op_version: u32,
    /// Zero.
    pub flags: u32,
    /// Tensor row of the result. Of ops that write into a source (`set_rows`, `cpy`) it is a view of source 0, with the
    /// same dims, strides, buffer and offset in a row of its own, or source 0's own row: compare addresses, not rows.
    pub dst: u32,
    /// Tensor rows; `LLMRT_NO_TENSOR` for an optional source left out.
    pub src: *const u32,
    /// Rows of `src`. Optional sources past it are left out. It may exceed the op's largest number of sources: rows
    /// past those that the plugin's version of the op has are `LLMRT_NO_TENSOR`, which means nothing, or an optional
    /// source of a later minor; a node with such a source is refused (`LLMRT_REASON_PARAM`), never computed without it.
    pub n_src: u32,
    /// Bytes of `params`.
    pub params_size: u32,
    /// The op's `llmrt_p_*` struct, which may be shorter than the header's (missing fields are 0) or longer: a later byte
    /// that is not 0 is an attribute of a later minor, and the node is refused (`LLMRT_REASON_PARAM`).
    pub params: *const c_void,
}

/// Nodes in execution order and the tensors they name.
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Graph {
    /// Size of this struct in the host's build.
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
    /// Same number: same topology, shapes, dtypes and params; 0: unknown.
    pub uid: u64,
    /// Same number, and same `uid`: same addresses.
    pub binding_gen: u64,
    /// For [`HostApi::cancelled`].
    pub run_id: u64,
    /// Tensor rows.
    pub tensors: *const Tensor,
    /// Node rows.
    pub nodes: *const Node,
}

/// Result of `supports` for one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
pub struct Verdict {
    /// 0 no, 1 yes, 2 only if the operands are on the device already, 3 yes, preferred even if they are in host memory.
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

/// The layout in which `seal` stored a weight.
#[derive(Clone, Copy)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
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
    /// Slices of rows must be multiples of this many rows.
    pub row_granularity: u64,
    /// For display.
    pub name: Str,
}

impl Str {
    /// The empty string.
    pub const EMPTY: Str = Str { ptr: core::ptr::null(), len: 0 };

    /// Borrows static text.
    pub const fn new(text: &'static str) -> Str {
        Str { ptr: text.as_ptr(), len: text.len() as u64 }
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

    /// The bytes of the message, bounded by the array whatever `msg_len` is.
    pub fn message(&self) -> &[u8] {
        &self.msg[..(self.msg_len as usize).min(self.msg.len())]
    }
}
