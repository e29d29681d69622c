//! A part of a row of a result.

use crate::ops::rows;
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements of one row that one member writes.
pub struct Part<'a> {
    y: Tensor,
    at: [usize; 3],
    elems: Range<usize>,
    owner: PhantomData<&'a mut [u8]>,
}

impl<'a> Part<'a> {
    /// Elements of the row at these indices. The partition gives them to no other part.
    #[inline]
    pub(super) fn new(y: Tensor, at: [usize; 3], elems: Range<usize>) -> Part<'a> {
        Part { y, at, elems, owner: PhantomData }
    }

    /// How many they are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.elems.len()
    }

    /// Their dtype.
    pub fn dtype(&self) -> DType {
        self.y.dtype
    }

    /// The elements of an F32 result with dense rows.
    #[inline]
    pub fn floats(self) -> &'a mut [f32] {
        assert!(self.y.has_f32_rows(), "floats of {} elements {} bytes apart", self.y.dtype, self.y.nb[0]);
        // SAFETY: these elements are this part's alone, and it is consumed.
        unsafe { self.y.part_mut(self.at, self.elems) }
    }

    /// The bytes of their blocks, of a result with dense rows.
    #[inline]
    pub fn bytes(self) -> &'a mut [u8] {
        assert!(self.y.has_dense_rows(), "bytes of blocks {} bytes apart", self.y.nb[0]);
        let (block, size) = (self.y.dtype.block_elems(), self.y.dtype.block_bytes());
        let bytes = self.elems.start / block * size..self.elems.end.div_ceil(block) * size;
        // SAFETY: as in `floats`; a part starts at a whole block, and ends at one or with the row.
        unsafe { self.y.part_bytes_mut(self.at, bytes) }
    }

    /// The bytes of each block, whatever their distance.
    pub fn blocks(self) -> impl Iterator<Item = &'a mut [u8]> {
        let Part { y, at, elems, .. } = self;
        let (block, size, step) = (y.dtype.block_elems(), y.dtype.block_bytes(), y.nb[0]);
        let blocks = elems.start / block..elems.end.div_ceil(block);
        // SAFETY: as in `bytes`; each block is given once, and blocks share no bytes.
        blocks.map(move |i| unsafe { y.part_bytes_mut(at, i * step..i * step + size) })
    }

    /// Writes `x`, converted to the dtype of a result with dense rows.
    pub fn write(self, isa: Isa, x: &[f32]) {
        rows::encode(isa, self.y.dtype, x, self.bytes());
    }
}
