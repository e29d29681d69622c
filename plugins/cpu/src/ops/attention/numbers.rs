//! The numbers of a tile's keys or values, straight from the cache or from where they were decoded to.

use crate::simd::{LANES, Simd};
use crate::tensor::Tensor;
use llmrt_plugin::DType;

/// Keys of a tile, which begins at a multiple of as many positions.
pub const KEYS: usize = 64;

/// The parts of cache rows that belong to a KV head, one per key of a tile.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    pub dtype: DType,
    bytes: &'a [u8],
    /// Bytes from row to row.
    stride: usize,
    /// Bytes of a row before the head's part.
    before: usize,
    /// Bytes of the head's part.
    len: usize,
}

impl<'a> Numbers<'a> {
    /// The head's part of the rows of a cache, if vectors of it can be read one by one.
    pub fn of_cache(cache: &'a Tensor, kv_head: usize, dim: usize) -> Option<Numbers<'a>> {
        let unit = match cache.dtype {
            DType::F32 | DType::F16 | DType::BF16 => LANES,
            DType::Q8_0 => 32,
            _ => return None,
        };
        let len = dim / cache.dtype.block_elems() * cache.dtype.block_bytes();
        let (bytes, stride) = (cache.bytes(), cache.nb[1]);
        let is_even = dim > 0 && dim.is_multiple_of(unit);
        is_even.then_some(Numbers { dtype: cache.dtype, bytes, stride, before: kv_head * len, len })
    }

    /// Rows of `dim` floats without gaps.
    pub fn of_floats(floats: &'a [f32], dim: usize) -> Numbers<'a> {
        // SAFETY: floats are bytes.
        let bytes = unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) };
        Numbers { dtype: DType::F32, bytes, stride: 4 * dim, before: 0, len: 4 * dim }
    }

    /// The blocks of row `i`.
    #[inline(always)]
    pub fn row<E: Element>(&self, i: usize) -> &'a [E::Block] {
        E::blocks(&self.bytes[i * self.stride + self.before..][..self.len])
    }
}

/// Asks for the parts of cache rows that belong to a KV head: rows lie too far apart for the machine to foresee.
#[derive(Clone, Copy)]
pub struct Ahead<'a> {
    cache: &'a Tensor,
    before: usize,
    n_bytes: usize,
}

impl<'a> Ahead<'a> {
    /// Of a head of `dim` elements.
    pub fn new(cache: &'a Tensor, kv_head: usize, dim: usize) -> Ahead<'a> {
        let n_bytes = dim / cache.dtype.block_elems() * cache.dtype.block_bytes();
        Ahead { cache, before: kv_head * n_bytes, n_bytes }
    }

    /// Asks for the part in a slot, if it is one.
    #[inline(always)]
    pub fn ask<S: Simd>(&self, s: S, slot: usize) {
        if slot != usize::MAX {
            let at = slot.wrapping_mul(self.cache.nb[1]).wrapping_add(self.before);
            let start = self.cache.bytes().as_ptr().wrapping_add(at);
            (0..self.n_bytes).step_by(64).for_each(|line| s.prefetch(start.wrapping_add(line)));
        }
    }
}

/// A dtype whose vectors can be read one by one.
pub trait Element {
    /// Bytes that belong together.
    type Block;
    /// Vectors of a block.
    const VECTORS: usize;
    /// A row as blocks.
    fn blocks(row: &[u8]) -> &[Self::Block];
    /// Vector `i` of a block.
    fn load<S: Simd>(s: S, block: &Self::Block, i: usize) -> S::F;
}

/// Vector `c` of a row.
#[inline(always)]
pub fn vector<S: Simd, E: Element>(s: S, row: &[E::Block], c: usize) -> S::F {
    E::load(s, &row[c / E::VECTORS], c % E::VECTORS)
}

pub enum F32 {}
pub enum F16 {}
pub enum Bf16 {}
pub enum Q8 {}

impl Element for F32 {
    type Block = [u8; 64];
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 64]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 64], _i: usize) -> S::F {
        s.from_bits(s.load_b(block))
    }
}

impl Element for F16 {
    type Block = [u8; 32];
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 32]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 32], _i: usize) -> S::F {
        s.load_f16(block)
    }
}

impl Element for Bf16 {
    type Block = [u8; 32];
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 32]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 32], _i: usize) -> S::F {
        s.load_bf16(block)
    }
}

/// Blocks of d (F16) and 32 signed bytes.
impl Element for Q8 {
    type Block = [u8; 34];
    const VECTORS: usize = 2;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 34]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 34], i: usize) -> S::F {
        let d = s.splat_f16(u16::from_le_bytes([block[0], block[1]]));
        let q = &block[2..].as_chunks::<16>().0[i];
        s.mul(s.float(s.load_i8(q)), d)
    }
}

/// Calls a function of an element type with that of the numbers' dtype.
macro_rules! with_element {
    ($dtype:expr, |$e:ident| $call:expr) => {
        match $dtype {
            llmrt_plugin::DType::F16 => {
                type $e = $crate::ops::attention::numbers::F16;
                $call
            }
            llmrt_plugin::DType::BF16 => {
                type $e = $crate::ops::attention::numbers::Bf16;
                $call
            }
            llmrt_plugin::DType::Q8_0 => {
                type $e = $crate::ops::attention::numbers::Q8;
                $call
            }
            _ => {
                type $e = $crate::ops::attention::numbers::F32;
                $call
            }
        }
    };
}
pub(super) use with_element;
