//! The keys or values of a KV head: straight from the cache, prefetched, or dequantised.

use super::element::KvElement;
use super::query_tile::{KvTile, QueryTile};
use crate::ops::rows;
use crate::simd::{LANES, Simd, dispatch, prefetch};
use crate::tensor::Tensor;
use llmrt_plugin::DType;

/// Keys of a tile, which begins at a multiple of as many positions.
pub const KEYS: usize = 64;

/// The parts of cache rows that belong to a KV head, one per key of a tile.
#[derive(Clone, Copy)]
pub struct KvRows<'a> {
    pub dtype: DType,
    bytes: &'a [u8],
    /// Bytes from row to row.
    stride: usize,
    /// Bytes of a row before the head's part.
    before: usize,
    /// Bytes of the head's part.
    len: usize,
}

impl<'a> KvRows<'a> {
    /// The head's part of the rows of a cache, if vectors of it can be read one by one.
    pub fn of_cache(cache: &'a Tensor, kv_head: usize, dim: usize) -> Option<KvRows<'a>> {
        let elems = match cache.dtype {
            DType::F32 | DType::F16 | DType::BF16 => LANES,
            DType::Q8_0 => 32,
            _ => return None,
        };
        let len = dim / cache.dtype.block_elems() * cache.dtype.block_bytes();
        let (bytes, stride) = (cache.bytes(), cache.nb[1]);
        let is_even = dim > 0 && dim.is_multiple_of(elems);
        is_even.then_some(KvRows { dtype: cache.dtype, bytes, stride, before: kv_head * len, len })
    }

    /// Rows of `dim` floats without gaps.
    pub fn of_floats(floats: &'a [f32], dim: usize) -> KvRows<'a> {
        // SAFETY: floats are bytes.
        let bytes = unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) };
        KvRows { dtype: DType::F32, bytes, stride: 4 * dim, before: 0, len: 4 * dim }
    }

    /// The blocks of row `i`.
    #[inline(always)]
    pub fn row<E: KvElement>(&self, i: usize) -> &'a [E::Block] {
        E::blocks(&self.bytes[i * self.stride + self.before..][..self.len])
    }
}

/// Prefetches the parts of cache rows that belong to a KV head: hardware prefetchers do not follow strides this large.
#[derive(Clone, Copy)]
pub struct Prefetch<'a> {
    /// The head's part of the cache's first row.
    first: *const u8,
    /// Bytes from row to row.
    stride: usize,
    n_bytes: usize,
    /// Slots of a tile's keys.
    slots: &'a [usize; KEYS],
}

impl<'a> Prefetch<'a> {
    /// For a head of `dim` elements, of no keys yet.
    pub fn new(cache: &Tensor, kv_head: usize, dim: usize) -> Prefetch<'a> {
        let n_bytes = dim / cache.dtype.block_elems() * cache.dtype.block_bytes();
        let first = cache.bytes().as_ptr().wrapping_add(kv_head * n_bytes);
        Prefetch { first, stride: cache.nb[1], n_bytes, slots: &[usize::MAX; KEYS] }
    }

    /// The same head's rows for the keys in `slots`.
    #[inline(always)]
    pub fn of(self, slots: &[usize; KEYS]) -> Prefetch<'_> {
        Prefetch { slots, ..self }
    }

    /// The part of a key's row, if the key has a slot.
    #[inline(always)]
    pub fn key(&self, key: usize) {
        let slot = self.slots[key];
        if slot != usize::MAX {
            let start = self.first.wrapping_add(slot.wrapping_mul(self.stride));
            (0..self.n_bytes).step_by(64).for_each(|line| prefetch(start.wrapping_add(line)));
        }
    }
}

dispatch! {
    /// Dequantises the head's part, `dims[0]` elements to rows of `dims[1]`, of the rows that have a slot; `whole_row` has
    /// room for one.
    #[allow(clippy::too_many_arguments)]
    pub fn dequantise(
        tile: &QueryTile<'_>,
        cache: &Tensor,
        kv: &KvTile,
        out: &mut [f32],
        dims: [usize; 2],
        whole_row: &mut [f32],
        prefetch: Prefetch<'_>,
    ) = dequantise_with;
}

#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn dequantise_with<S: Simd>(
    s: S,
    tile: &QueryTile<'_>,
    cache: &Tensor,
    kv: &KvTile,
    out: &mut [f32],
    [n, dim]: [usize; 2],
    whole_row: &mut [f32],
    prefetch: Prefetch<'_>,
) {
    let (elems, size) = (cache.dtype.block_elems(), cache.dtype.block_bytes());
    for (key, &slot) in kv.slots.iter().enumerate() {
        prefetch.key(key);
        if slot == usize::MAX || n == 0 {
            continue;
        }
        let (bytes, out) = (cache.row_bytes([slot, 0, 0]), &mut out[key * dim..][..n]);
        if !n.is_multiple_of(elems) {
            rows::decode(tile.isa, cache.dtype, bytes, whole_row);
            out.copy_from_slice(&whole_row[tile.kv_head * n..][..n]);
            continue;
        }
        let bytes = &bytes[tile.kv_head * n / elems * size..][..n / elems * size];
        match cache.dtype {
            DType::F16 if n.is_multiple_of(LANES) => {
                for (v, to) in bytes.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<LANES>().0) {
                    s.store(s.load_f16(v), to);
                }
            }
            DType::Q8_0 => rows::from_q8_0_with(s, bytes, out),
            dtype => rows::decode(tile.isa, dtype, bytes, out),
        }
    }
}
