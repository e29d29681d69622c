//! q · k: 16 partial sums by dim modulo 16, then their sum, upper half onto lower half until one is left.
//!
//! Few queries read keys in the layout of the cache, lane by dim. For many, keys are packed, lane by key: that costs as
//! much as some queries, and then no sum goes across lanes. Both are the same sum.

mod direct;
mod packed;

pub use direct::direct;
pub use packed::{pack, packed};

use super::kv_rows::KEYS;
use crate::simd::LANES;

/// Queries [rows, dim], dim a multiple of 16, and what becomes of them.
pub struct Rows<'a> {
    pub q: &'a [f32],
    pub dim: usize,
    /// Dots with the keys of the tile.
    pub dots: &'a mut [[f32; KEYS]],
}

impl Rows<'_> {
    #[inline(always)]
    fn q(&self, r: usize) -> &[[f32; LANES]] {
        self.q[r * self.dim..][..self.dim].as_chunks().0
    }
}
