//! A tensor: a view of memory, with strides and an offset from an aligned address.

use crate::address::is_device;
use crate::fault::{Answer, fault};
use crate::sys::*;
use crate::world::world;

/// A view of memory, outer dims first, all counts in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: aclDataType,
    /// Elements per dim.
    pub dims: Vec<i64>,
    /// Elements from one to the next of a dim.
    pub strides: Vec<i64>,
    /// Elements from the base to the first.
    pub offset: i64,
    /// How the storage is laid out.
    pub format: aclFormat,
    /// Dims of the storage.
    pub storage: Vec<i64>,
    /// Address of the storage.
    pub base: usize,
}

/// Bits of an element; `None` for a type that is not simulated.
pub fn bits(dtype: aclDataType) -> Option<usize> {
    Some(match dtype {
        ACL_FLOAT | ACL_INT32 | ACL_UINT32 => 32,
        ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => 16,
        ACL_INT64 | ACL_UINT64 | ACL_DOUBLE => 64,
        ACL_INT8 | ACL_UINT8 | ACL_BOOL => 8,
        ACL_INT4 => 4,
        _ => return None,
    })
}

/// Bytes of an element, of types with whole bytes.
pub fn element_bytes(dtype: aclDataType) -> usize {
    bits(dtype).unwrap_or(8) / 8
}

impl Tensor {
    /// What the library requires of a tensor.
    pub fn check(&self) -> Answer {
        let Tensor { dims, strides, storage, .. } = self;
        let bad = |text: String| fault(ACLNN_ERR_PARAM_INVALID, text);
        if bits(self.dtype).is_none() {
            return bad(format!("dtype {}", self.dtype));
        }
        if dims.len() > 8 || storage.len() > 8 {
            return bad(format!("{} dims, more than 8", dims.len().max(storage.len())));
        }
        if self.offset < 0 || dims.iter().chain(strides).chain(storage).any(|n| *n < 0) {
            return bad(format!("a negative number in {self:?}"));
        }
        if self.dtype == ACL_INT4 && storage.last().is_some_and(|n| n % 2 != 0) {
            return bad(format!("an odd inner dim of int4 in {storage:?}"));
        }
        let w = world();
        if !self.base.is_multiple_of(32) {
            w.doubt(
                ACLNN_ERR_PARAM_INVALID,
                format!("a tensor's address {:#x} is no multiple of 32", self.base),
            )?;
        }
        if self.base != 0 && !is_device(self.base) {
            w.doubt(
                ACLNN_ERR_PARAM_INVALID,
                format!("a tensor's address {:#x} is not on a card", self.base),
            )?;
        }
        let room: i64 = storage.iter().product();
        if self.format == ACL_FORMAT_ND && self.n_elements() > 0 && self.end() > room {
            let (end, text) = (self.end(), "a view ends at element");
            return w.doubt(ACLNN_ERR_PARAM_INVALID, format!("{text} {end} of a storage of {room}"));
        }
        Ok(())
    }

    /// Elements.
    pub fn n_elements(&self) -> usize {
        self.dims.iter().product::<i64>() as usize
    }

    /// One past the last element, counted from the base. The tensor is not empty.
    pub fn end(&self) -> i64 {
        let last: i64 = self.dims.iter().zip(&self.strides).map(|(n, stride)| (n - 1) * stride).sum();
        self.offset + last + 1
    }

    /// Whether elements follow each other without gaps, in order.
    pub fn is_contiguous(&self) -> bool {
        let expected = contiguous(&self.dims);
        self.dims
            .iter()
            .zip(&self.strides)
            .zip(expected)
            .all(|((n, stride), packed)| *n == 1 || *stride == packed)
    }
}

/// Strides of memory without gaps.
pub fn contiguous(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d].max(1);
    }
    strides
}
