//! Tensors as they cross the ABI: dims, strides, and the bytes they take.

use super::Buffer;
use crate::error::{Error, Result};
use llmrt_abi::{DType, types as c};

/// A tensor to put into a graph or to move bytes to and from.
#[derive(Clone, Copy)]
pub struct TensorDesc<'a> {
    /// What it holds.
    pub dtype: DType,
    /// Elements per dim, innermost first. A dim of 0 makes the tensor empty: it has no bytes, and a node whose result
    /// is empty is no work.
    pub ne: [u64; 4],
    /// Bytes between elements (blocks for dim 0) of a dim.
    pub nb: [u64; 4],
    /// `abi::types::ROLE_*`.
    pub role: u32,
    /// `abi::types::TENSOR_*` bits.
    pub flags: u32,
    /// Layout made by `seal`; 0: canonical.
    pub layout_id: u32,
    /// Its memory; `None` while placing.
    pub buffer: Option<&'a Buffer>,
    /// First byte in the buffer, views included.
    pub offset: u64,
    /// For views: row of the viewed tensor, and offset in it.
    pub view: Option<(u32, u64)>,
    /// For logs.
    pub name: &'a str,
}

impl<'a> TensorDesc<'a> {
    /// A contiguous tensor without memory.
    pub fn contiguous(dtype: DType, ne: [u64; 4]) -> TensorDesc<'a> {
        let row = dtype.row_bytes(ne[0]).unwrap_or(u64::MAX);
        let nb1 = row;
        let nb2 = nb1.saturating_mul(ne[1]);
        let nb = [dtype.block_bytes() as u64, nb1, nb2, nb2.saturating_mul(ne[2])];
        TensorDesc {
            dtype,
            ne,
            nb,
            role: c::ROLE_OTHER,
            flags: 0,
            layout_id: 0,
            buffer: None,
            offset: 0,
            view: None,
            name: "",
        }
    }

    /// `n` plain bytes at `offset` of a buffer.
    pub fn bytes(offset: u64, n: u64) -> TensorDesc<'a> {
        TensorDesc { offset, ..TensorDesc::contiguous(DType::I8, [n.max(1), 1, 1, 1]) }
    }

    /// Bytes from the first to past the last element; 0 if there is none. An error if dims or strides make no sense.
    pub fn nbytes(&self) -> Result<u64> {
        let bad = |problem: String| Error::invalid(format!("tensor `{}`", self.name), problem);
        if self.ne.iter().any(|&n| n > i64::MAX as u64) {
            return Err(bad(format!("dims {:?}; each must be at most {}", self.ne, i64::MAX)));
        }
        let block = self.dtype.block_elems() as u64;
        if !self.ne[0].is_multiple_of(block) {
            return Err(bad(format!(
                "{} elements per row; {} has blocks of {block}",
                self.ne[0], self.dtype
            )));
        }
        if self.ne.contains(&0) {
            return Ok(0);
        }
        let steps = [self.ne[0] / block, self.ne[1], self.ne[2], self.ne[3]];
        let last = steps
            .iter()
            .zip(self.nb)
            .try_fold(0u64, |sum, (n, nb)| sum.checked_add((n - 1).checked_mul(nb)?));
        let end = last.and_then(|at| at.checked_add(self.dtype.block_bytes() as u64));
        end.ok_or_else(|| bad(format!("dims {:?} with strides {:?} overflow", self.ne, self.nb)))
    }

    /// The C struct without buffer, name and row number.
    pub(crate) fn to_abi(self, nbytes: u64) -> c::Tensor {
        let n_dims = self.ne.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1) as u32;
        let (view_src, view_offset) = self.view.unwrap_or((c::NO_TENSOR, 0));
        c::Tensor {
            id: 0,
            dtype: self.dtype.id(),
            role: self.role,
            flags: self.flags,
            n_dims,
            layout_id: self.layout_id,
            ne: self.ne.map(|n| n as i64),
            nb: self.nb,
            buffer: std::ptr::null_mut(),
            offset: self.offset,
            nbytes,
            view_offset,
            view_src,
            reserved: 0,
            name: c::Str::EMPTY,
        }
    }
}

/// Checks that a tensor's bytes are inside a buffer.
pub(crate) fn check_fits(name: &str, offset: u64, nbytes: u64, buffer: &Buffer) -> Result<()> {
    let end = offset.checked_add(nbytes);
    if end.is_some_and(|end| end <= buffer.size()) {
        return Ok(());
    }
    let problem = format!(
        "{nbytes} bytes from byte {offset} end past the {} bytes of its buffer on {}",
        buffer.size(),
        buffer.device().name()
    );
    Err(Error::invalid(format!("tensor `{name}`"), problem))
}
