//! Tensors as operators take them: dims and strides in elements, an offset from an aligned base. Inner dims first, as
//! everywhere in llmrt; turned around only when the vendor's object is made.

use crate::buffer::CardMemory;
use crate::sys::*;
use llmrt_plugin::{DType, Error, Result, TensorView};
use std::ffi::c_void;

/// Most dims an operator takes.
pub const MAX_DIMS: usize = 8;

/// A view of memory on the card.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Element type.
    pub dtype: aclDataType,
    /// Elements per dim, inner first.
    pub ne: Vec<i64>,
    /// Elements from one to the next of a dim.
    pub stride: Vec<i64>,
    /// Elements from `base` to the first.
    pub offset: i64,
    /// An address of the card, aligned to 32 bytes.
    pub base: *mut c_void,
}

/// The vendor's number of a plain dtype.
pub fn number(dtype: DType) -> Option<aclDataType> {
    Some(match dtype {
        DType::F32 => ACL_FLOAT,
        DType::F16 => ACL_FLOAT16,
        DType::BF16 => ACL_BF16,
        DType::F64 => ACL_DOUBLE,
        DType::I8 => ACL_INT8,
        DType::I16 => ACL_INT16,
        DType::I32 => ACL_INT32,
        DType::I64 => ACL_INT64,
        _ => return None,
    })
}

/// Bytes of an element; INT4 has two per byte and counts as one here.
pub fn element_bytes(dtype: aclDataType) -> i64 {
    match dtype {
        ACL_FLOAT | ACL_INT32 | ACL_UINT32 => 4,
        ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => 2,
        ACL_INT64 | ACL_UINT64 | ACL_DOUBLE => 8,
        _ => 1,
    }
}

impl Operand {
    /// A tensor of the graph. Strides that are no multiple of the element have no form here.
    pub fn of(t: &TensorView<'_>) -> Result<Operand> {
        let name = t.name();
        let dtype = t.dtype().filter(|_| t.layout_id() == 0).and_then(number);
        let dtype = dtype.ok_or_else(|| Error::unsupported(format!("`{name}` has no plain dtype")))?;
        let memory = t.buffer::<CardMemory>();
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{name}` is not on a card")))?;
        let size = element_bytes(dtype);
        let bytes = t.nb().map(|nb| nb as i64).into_iter().chain([t.offset() as i64]);
        let elements: Vec<i64> = bytes.map(|n| if n % size == 0 { n / size } else { -1 }).collect();
        if elements.contains(&-1) {
            return Err(Error::unsupported(format!("`{name}` has strides of {:?} bytes", t.nb())));
        }
        Ok(Operand {
            dtype,
            ne: t.ne().map(|n| n as i64).to_vec(),
            stride: elements[..4].to_vec(),
            offset: elements[4],
            base: memory.address(0),
        })
    }

    /// The F16 numbers of a weight that was sealed so, in any order.
    pub fn halves(t: &TensorView<'_>) -> Result<Operand> {
        let memory = t.buffer::<CardMemory>();
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{}` is not on a card", t.name())))?;
        let all = Operand::contiguous(ACL_FLOAT16, &t.ne().map(|n| n as i64), memory.address(0));
        Ok(Operand { offset: t.offset() as i64 / 2, ..all })
    }

    /// Memory without gaps.
    pub fn contiguous(dtype: aclDataType, ne: &[i64], base: *mut c_void) -> Operand {
        let step = |at: &mut i64, n: &i64| {
            let stride = *at;
            *at *= n;
            Some(stride)
        };
        let stride = ne.iter().scan(1, step).collect();
        Operand { dtype, ne: ne.to_vec(), stride, offset: 0, base }
    }

    /// An address and the elements from there to the first: none where the first element is aligned to 32 bytes. The library
    /// finds a planned operator by offsets and sizes and not by addresses (opbase, `op_cache.cpp`), so that operators of
    /// equal layers are one to it.
    pub fn origin(&self) -> (*mut c_void, i64) {
        // Two of INT4 are a byte.
        let per_byte = if self.dtype == ACL_INT4 { 2 } else { 1 };
        let bytes = self.offset * element_bytes(self.dtype) / per_byte;
        let first = self.base.cast::<u8>().wrapping_offset(bytes as isize);
        match self.offset % per_byte == 0 && first.addr().is_multiple_of(32) {
            true => (first.cast(), 0),
            false => (self.base, self.offset),
        }
    }

    /// Elements.
    pub fn n_elements(&self) -> i64 {
        self.ne.iter().product()
    }

    /// Whether elements follow each other without gaps, in order.
    pub fn is_contiguous(&self) -> bool {
        let expected = Operand::contiguous(self.dtype, &self.ne, self.base).stride;
        self.ne
            .iter()
            .zip(&self.stride)
            .zip(expected)
            .all(|((n, stride), packed)| *n == 1 || *stride == packed)
    }

    /// The same elements under other dims; the operand has no gaps.
    pub fn reshape(&self, ne: &[i64]) -> Operand {
        Operand { offset: self.offset, ..Operand::contiguous(self.dtype, ne, self.base) }
    }

    /// Dim `d` of the result is dim `axes[d]` of this.
    pub fn permute(&self, axes: &[usize]) -> Operand {
        let pick = |v: &[i64]| axes.iter().map(|&a| v[a]).collect();
        Operand { ne: pick(&self.ne), stride: pick(&self.stride), ..self.clone() }
    }

    /// `n` elements of dim `dim` from `start` on.
    pub fn slice(&self, dim: usize, start: i64, n: i64) -> Operand {
        let mut part = self.clone();
        part.ne[dim] = n;
        part.offset += start * part.stride[dim];
        part
    }

    /// Dim `dim` as two: `inner` elements, and as many times that as there are.
    pub fn split(&self, dim: usize, inner: i64) -> Operand {
        let mut split = self.clone();
        split.ne[dim] = inner;
        split.ne.insert(dim + 1, self.ne[dim] / inner);
        split.stride.insert(dim + 1, self.stride[dim] * inner);
        split
    }

    /// With a dim of one element put in.
    pub fn with_dim(&self, dim: usize) -> Operand {
        let mut t = self.clone();
        t.ne.insert(dim, 1);
        t.stride.insert(dim, 0);
        t
    }

    /// Without dim `dim`, of which element 0 is taken.
    pub fn without_dim(&self, dim: usize) -> Operand {
        let mut t = self.clone();
        t.ne.remove(dim);
        t.stride.remove(dim);
        t
    }

    /// Every `step`th element of a dim from `start` on.
    pub fn every(&self, dim: usize, start: i64, step: i64) -> Operand {
        let mut part = self.slice(dim, start, (self.ne[dim] - start + step - 1) / step);
        part.stride[dim] *= step;
        part
    }

    /// The first `rank` dims; the others have one element each.
    pub fn flat(&self, rank: usize) -> Operand {
        let mut t = self.clone();
        t.ne.truncate(rank);
        t.stride.truncate(rank);
        t
    }

    /// The same bytes as another dtype of the same size.
    pub fn as_type(&self, dtype: aclDataType) -> Operand {
        Operand { dtype, ..self.clone() }
    }

    /// Without trailing dims of 1, but for `at_least` dims.
    pub fn trimmed(&self, at_least: usize) -> Operand {
        let mut t = self.clone();
        while t.ne.len() > at_least && t.ne.last() == Some(&1) {
            t.ne.pop();
            t.stride.pop();
        }
        t
    }
}

/// Two operands whose dims are equal or 1 in pairs, as the library broadcasts them: where a dim of `a` is a multiple of
/// that of `b`, it becomes two, [n_b] and [n_a / n_b], and b gets a 1 for the second. `None` if that takes more dims
/// than there are.
pub fn broadcast(a: &Operand, b: &Operand, y: &Operand) -> Option<[Operand; 3]> {
    let (mut a, mut b, mut y) = (a.clone(), b.clone(), y.clone());
    let mut d = 0;
    while d < a.ne.len() {
        let (n_a, n_b) = (a.ne[d], b.ne[d]);
        if n_a != n_b && n_b != 1 {
            (a, y) = (a.split(d, n_b), y.split(d, n_b));
            b.ne.insert(d + 1, 1);
            b.stride.insert(d + 1, 0);
            d += 1;
        }
        d += 1;
    }
    (a.ne.len() <= MAX_DIMS).then_some([a, b, y])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(ne: &[i64]) -> Operand {
        Operand::contiguous(ACL_FLOAT, ne, std::ptr::null_mut())
    }

    #[test]
    fn a_dim_that_is_a_multiple_becomes_two() {
        // The example of ggml's document of its CANN backend, inner dims first.
        let [a, b, y] =
            broadcast(&operand(&[7, 2, 10, 9]), &operand(&[7, 2, 5, 9]), &operand(&[7, 2, 10, 9])).unwrap();
        assert_eq!(a.ne, [7, 2, 5, 2, 9]);
        assert_eq!(b.ne, [7, 2, 5, 1, 9]);
        assert_eq!((y.stride, a.stride), (vec![1, 7, 14, 70, 140], vec![1, 7, 14, 70, 140]));
        assert_eq!(b.stride, [1, 7, 14, 0, 70]);
    }

    #[test]
    fn dims_of_one_are_left_to_the_library() {
        let [a, b, _] = broadcast(&operand(&[4, 3]), &operand(&[4, 1]), &operand(&[4, 3])).unwrap();
        assert_eq!((a.ne, b.ne), (vec![4, 3], vec![4, 1]));
    }

    #[test]
    fn a_tensor_begins_at_its_first_element_where_that_is_aligned() {
        let t = Operand::contiguous(ACL_FLOAT, &[16, 4], std::ptr::without_provenance_mut(64));
        let origin = |t: &Operand| (t.origin().0.addr(), t.origin().1);
        assert_eq!(origin(&t.slice(1, 2, 1)), (192, 0));
        assert_eq!(origin(&t.slice(0, 3, 1)), (64, 3));
        assert_eq!(origin(&t.slice(1, 2, 1).as_type(ACL_INT4)), (64, 32), "two are a byte");
        assert_eq!(origin(&t.slice(1, 4, 1).as_type(ACL_INT4)), (96, 0));
    }

    #[test]
    fn views_keep_their_strides() {
        let t = operand(&[4, 3, 2]);
        assert_eq!(t.permute(&[1, 0, 2]).stride, [4, 1, 12]);
        let part = t.slice(1, 1, 2);
        assert_eq!((part.ne.clone(), part.offset, part.is_contiguous()), (vec![4, 2, 2], 4, false));
        assert!(t.is_contiguous() && !t.permute(&[1, 0, 2]).is_contiguous());
    }
}
