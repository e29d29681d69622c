//! Plain data: texts, errors, tensors, nodes, graphs, and what plugins answer about them.

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

/// What went wrong, in memory of the caller; nothing to free. 256 bytes.
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

/// Answer of [`HostApi::type_info`].
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
    /// Elements per dim, innermost first. A dim of 0 makes the tensor empty: `nbytes` is 0, and a node with an empty
    /// result is no work.
    pub ne: [i64; 4],
    /// Bytes between elements (blocks for dim 0) of a dim: any number, also no multiple of the element's size. A device
    /// refuses those that it cannot do (`LLMRT_REASON_STRIDE`).
    pub nb: [u64; 4],
    /// Its memory; NULL while placing.
    pub buffer: *mut Buffer,
    /// First byte in the buffer, views included.
    pub offset: u64,
    /// Bytes from first to past-the-last element; 0 if there is none.
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
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
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
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
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
    /// Same number: same topology, shapes, dtypes and params; 0: nothing is said.
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

/// Answer of `supports` for one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
#[cfg_attr(feature = "layout-check", derive(abi_stable::StableAbi))]
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
    /// Rows that slices must be multiples of.
    pub row_granularity: u64,
    /// For people.
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

    /// The bytes of the message, bounded by the array whatever `msg_len` says.
    pub fn message(&self) -> &[u8] {
        &self.msg[..(self.msg_len as usize).min(self.msg.len())]
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
