//! Tensors as kernels see them: rows of host memory, with the index arithmetic of strides in one place.

use crate::buffer::HostBuffer;
use crate::quant::ROWS;
use crate::sealed::{self, Columns, Panels};
use llmrt_plugin::{DType, Error, Result, TensorView};
use std::ops::Range;

/// Address of a tensor's first byte, if the CPU can read it.
pub fn address(t: &TensorView<'_>) -> Option<*mut u8> {
    match t.buffer::<HostBuffer>() {
        Some(buffer) => Some(buffer.address().wrapping_add(t.offset() as usize)),
        None => t.host_ptr(),
    }
}

/// Whether elements that kernels see as F32 or I32 are at multiples of 4 bytes from the start of the buffer; other dtypes
/// are read byte by byte, at any address. Where a tensor is empty, or a dim has one element, no stride is walked.
pub fn is_aligned(t: &TensorView<'_>) -> bool {
    let word = t.dtype().map_or(1, word);
    let mut dims = t.ne().into_iter().zip(t.nb());
    let is_even = dims.all(|(n, nb)| n <= 1 || nb.is_multiple_of(word));
    t.ne().contains(&0) || (is_even && t.offset().is_multiple_of(word as u64))
}

/// The bytes that elements are aligned to.
fn word(dtype: DType) -> usize {
    if matches!(dtype, DType::F32 | DType::I32) { 4 } else { 1 }
}

/// A tensor in host memory. Copies name the same memory; what is written goes through [`crate::ops::Output`].
#[derive(Clone, Copy, PartialEq)]
pub struct Tensor {
    ptr: *mut u8,
    len: usize,
    /// Its dtype.
    pub dtype: DType,
    /// Elements per dim.
    pub ne: [usize; 4],
    /// Bytes between elements of a dim.
    pub nb: [usize; 4],
    /// Its layout in memory, if `seal` changed that. Only products and `get_rows` read it.
    pub panels: Option<Panels>,
    /// The other layout of `seal`, which only `mul_mat` reads.
    pub columns: Option<Columns>,
}

// SAFETY: a tensor is an address and numbers; the methods that give slices state what the caller guarantees.
unsafe impl Send for Tensor {}
// SAFETY: as above.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// Binds a tensor of the graph to its memory.
    pub fn bind(t: &TensorView<'_>) -> Result<Tensor> {
        let dtype =
            t.dtype().ok_or_else(|| Error::invalid(format!("`{}` has an unknown dtype", t.name())))?;
        let len = t.nbytes() as usize;
        let ptr = match address(t) {
            Some(ptr) => ptr,
            None if len == 0 => std::ptr::NonNull::<u64>::dangling().as_ptr().cast(),
            None => {
                return Err(Error::invalid(format!("`{}` is not in memory that the CPU can read", t.name())));
            }
        };
        if len > 0 && !(is_aligned(t) && (ptr as usize).is_multiple_of(word(dtype))) {
            return Err(Error::invalid(format!("`{}` is not aligned to its {dtype} elements", t.name())));
        }
        let panels = (t.layout_id() == sealed::ROWS_16).then(|| Panels::of(t)).flatten();
        let columns = (t.layout_id() == sealed::COLUMNS).then(|| Columns::of(t)).flatten();
        Ok(Tensor { ptr, len, dtype, ne: t.ne(), nb: t.nb(), panels, columns })
    }

    /// Elements in this shape, without gaps, in memory of this process.
    ///
    /// # Safety
    /// The bytes are where they are, and used as the methods state, as long as the tensor or a copy of it is used; F32 and I32
    /// elements are aligned.
    pub unsafe fn of_bytes(bytes: &mut [u8], dtype: DType, ne: [usize; 4]) -> Tensor {
        let mut nb = [dtype.block_bytes(), ne[0] / dtype.block_elems() * dtype.block_bytes(), 0, 0];
        (nb[2], nb[3]) = (nb[1] * ne[1], nb[1] * ne[1] * ne[2]);
        assert_eq!(nb[3] * ne[3], bytes.len(), "{dtype} elements of {ne:?}");
        Tensor { ptr: bytes.as_mut_ptr(), len: bytes.len(), dtype, ne, nb, panels: None, columns: None }
    }

    /// F32 elements in this shape.
    #[cfg(test)]
    pub fn over(elems: &mut [f32], ne: [usize; 4]) -> Tensor {
        let (ptr, len) = (elems.as_mut_ptr().cast(), size_of_val(elems));
        let flat = [elems.len(), 1, 1, 1];
        Tensor { ptr, len, dtype: DType::F32, ne: flat, nb: [4, len, len, len], panels: None, columns: None }
            .reshaped(ne)
    }

    /// Whether each row's elements follow each other without gaps.
    pub fn has_dense_rows(&self) -> bool {
        self.nb[0] == self.dtype.block_bytes() || self.ne[0] <= self.dtype.block_elems()
    }

    /// The bytes it spans.
    pub fn span(&self) -> Range<usize> {
        self.ptr as usize..self.ptr as usize + self.len
    }

    /// Rows of dim 0.
    pub fn n_rows(&self) -> usize {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Elements.
    pub fn n_elems(&self) -> usize {
        self.ne[0] * self.n_rows()
    }

    /// Whether its rows are f32 without gaps between their elements.
    pub fn has_f32_rows(&self) -> bool {
        self.dtype == DType::F32 && (self.nb[0] == 4 || self.ne[0] == 1)
    }

    /// Whether elements follow each other without gaps, in order.
    pub fn is_gapless(&self) -> bool {
        let mut expected = self.dtype.block_bytes();
        let n_blocks = [self.ne[0] / self.dtype.block_elems(), self.ne[1], self.ne[2], self.ne[3]];
        self.ne.iter().zip(n_blocks).zip(self.nb).all(|((&ne, n), nb)| {
            let fits = ne == 1 || nb == expected;
            expected *= n;
            fits
        })
    }

    /// The same elements in one row; the tensor has no gaps.
    pub fn flat(&self) -> Tensor {
        self.reshaped([self.n_elems(), 1, 1, 1])
    }

    /// The same elements in another shape; the tensor has no gaps, nor blocks of several elements.
    pub fn reshaped(&self, ne: [usize; 4]) -> Tensor {
        let fits = self.is_gapless() && self.dtype.block_elems() == 1;
        assert!(fits && ne.iter().product::<usize>() == self.n_elems(), "{:?} as {ne:?}", self.ne);
        let mut nb = [self.dtype.block_bytes(); 4];
        (1..4).for_each(|d| nb[d] = nb[d - 1] * ne[d - 1]);
        Tensor { ne, nb, ..*self }
    }

    /// The first `n` elements and the others, each in one row; as in [`Tensor::reshaped`].
    pub fn split_at(&self, n: usize) -> [Tensor; 2] {
        let all = self.flat();
        let (n_bytes, rest) = (n * all.nb[0], all.ne[0].checked_sub(n));
        let rest = rest.unwrap_or_else(|| panic!("{n} elements of {:?}", self.ne));
        let first = Tensor { ne: [n, 1, 1, 1], len: n_bytes, ..all };
        let ptr = self.ptr.wrapping_add(n_bytes);
        [first, Tensor { ptr, ne: [rest, 1, 1, 1], len: rest * all.nb[0], ..all }]
    }

    /// Dims 1 to 3 of row `i`.
    #[inline(always)]
    pub fn unravel(&self, i: usize) -> [usize; 3] {
        // Divisions take longer than much of what is done with a row.
        if i < self.ne[1] {
            return [i, 0, 0];
        }
        [i % self.ne[1], i / self.ne[1] % self.ne[2], i / self.ne[1] / self.ne[2]]
    }

    /// Which row that is: `i` of [`Tensor::unravel`].
    #[inline]
    pub fn ravel(&self, [i1, i2, i3]: [usize; 3]) -> usize {
        i1 + self.ne[1] * (i2 + self.ne[2] * i3)
    }

    /// Byte offset of a row.
    #[inline]
    pub fn offset_of(&self, [i1, i2, i3]: [usize; 3]) -> usize {
        i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3]
    }

    /// All its bytes, gaps included. They are not written while the node runs.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `bind` took address and length from the host, who checked them against the buffer; a source is
        // not written while its node runs.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// The panel of 16 rows that begins with the row at these indices, if it is sealed and has 16.
    pub fn panel(&self, at: [usize; 3]) -> Option<&[u8]> {
        let n = ROWS * self.nb[1];
        let is_panel = self.panels.is_some() && at[0].is_multiple_of(ROWS) && at[0] + ROWS <= self.ne[1];
        is_panel.then(|| &self.bytes()[self.offset_of(at)..][..n])
    }

    /// Bytes of the row at these indices.
    pub fn row_bytes(&self, at: [usize; 3]) -> &[u8] {
        &self.bytes()[self.offset_of(at)..][self.bytes_of(&(0..self.ne[0]))]
    }

    /// Where in a row without gaps these elements are, whole blocks.
    pub fn bytes_of(&self, elems: &Range<usize>) -> Range<usize> {
        let (block, size) = (self.dtype.block_elems(), self.dtype.block_bytes());
        elems.start / block * size..elems.end / block * size
    }

    /// F32 row at these indices.
    #[inline]
    pub fn row(&self, at: [usize; 3]) -> &[f32] {
        debug_assert_eq!(self.dtype, DType::F32);
        let start = self.offset_of(at);
        let bytes = &self.bytes()[start..start + self.ne[0] * size_of::<f32>()];
        // SAFETY: `bytes` is in bounds; `bind` checked the alignment; any bits are an f32.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.ne[0]) }
    }

    /// I32 row at these indices.
    pub fn ints(&self, at: [usize; 3]) -> &[i32] {
        let bytes = self.row_bytes(at);
        debug_assert_eq!(self.dtype, DType::I32);
        // SAFETY: as in `row`.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.ne[0]) }
    }

    /// Element `i` of the I32 row at these indices, at any strides.
    pub fn int(&self, at: [usize; 3], i: usize) -> i32 {
        debug_assert_eq!(self.dtype, DType::I32);
        let bytes = self.bytes()[self.offset_of(at) + i * self.nb[0]..].first_chunk();
        bytes.map_or(0, |b| i32::from_ne_bytes(*b))
    }

    /// Bytes `part` of the row at these indices, to write.
    ///
    /// # Safety
    /// The tensor is the node's result, and nothing else uses these bytes as long as the slice is in use.
    pub unsafe fn part_bytes_mut<'a>(&self, at: [usize; 3], part: Range<usize>) -> &'a mut [u8] {
        let start = self.offset_of(at) + part.start;
        assert!(start + part.len() <= self.len, "bytes {part:?} of row {at:?} of {:?}", self.ne);
        // SAFETY: in bounds by the assertion; the caller promises that it is the only user.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), part.len()) }
    }

    /// Elements `part` of the F32 row at these indices, to write.
    ///
    /// # Safety
    /// The tensor is the node's result, and nothing else uses these elements as long as the slice is in use.
    #[inline(always)]
    pub unsafe fn part_mut<'a>(&self, at: [usize; 3], part: Range<usize>) -> &'a mut [f32] {
        let start = self.offset_of(at) + part.start * 4;
        assert!(
            start + part.len() * 4 <= self.len,
            "{} elements at byte {start} of {}",
            part.len(),
            self.len
        );
        // SAFETY: in bounds by the assertion, aligned by `bind`; the caller promises that it is the only user.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start).cast(), part.len()) }
    }
}
