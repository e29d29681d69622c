//! Σ weight · v of a tile's keys, in order of position, added to the sums of each row.

use super::element::{KvElement, vector};
use super::kv_rows::{KEYS, KvRows, Prefetch};
use crate::simd::{LANES, Simd, array};
use std::ops::Range;

/// Weights of the keys, and weighted sums [rows, dim], dim a multiple of 16.
pub struct Rows<'a> {
    pub weights: &'a [[f32; KEYS]],
    pub acc: &'a mut [f32],
    pub dim: usize,
    /// First key of the tile that is seen and the one past the last.
    pub visible: &'a [[u32; 2]],
}

/// Adds values in `slots`; keys whose slot is `usize::MAX` have none.
#[inline(always)]
pub fn accumulate<S: Simd, E: KvElement>(
    s: S,
    rows: &mut Rows<'_>,
    v: KvRows<'_>,
    slots: &[usize; KEYS],
    prefetch: Option<Prefetch<'_>>,
) {
    let n_vectors = rows.dim / LANES;
    let mut at = 0;
    while at < n_vectors {
        let first = at == 0;
        // Blocks of two vectors come in pairs, so the odd one is a block.
        let step = match n_vectors - at {
            4.. if S::WIDE || (S::TILED && rows.visible.len() == 1) => 4,
            2.. => 2,
            _ => 1,
        };
        let mut r = 0;
        while r < rows.visible.len() {
            let prefetch = prefetch.filter(|_| first && r == 0);
            let left = rows.visible.len() - r;
            r += match (step, left) {
                (4, 4..) if S::WIDE => shared_keys::<S, E, 4, 4>(s, rows, v, slots, r, at, prefetch),
                (4, 2..) if S::WIDE => shared_keys::<S, E, 2, 4>(s, rows, v, slots, r, at, prefetch),
                (4, _) if S::TILED => shared_keys::<S, E, 1, 4>(s, rows, v, slots, r, at, prefetch),
                (2, 2..) if S::TILED => shared_keys::<S, E, 2, 2>(s, rows, v, slots, r, at, prefetch),
                (2, _) => shared_keys::<S, E, 1, 2>(s, rows, v, slots, r, at, prefetch),
                _ => shared_keys::<S, E, 1, 1>(s, rows, v, slots, r, at, prefetch),
            };
        }
        at += step;
    }
}

/// Elements of `D` vectors of `R` rows: keys that all see together, those before and after row by row. Gives R.
#[inline(always)]
fn shared_keys<S: Simd, E: KvElement, const R: usize, const D: usize>(
    s: S,
    rows: &mut Rows<'_>,
    v: KvRows<'_>,
    slots: &[usize; KEYS],
    r: usize,
    at: usize,
    prefetch: Option<Prefetch<'_>>,
) -> usize {
    let visible: [Range<usize>; R] = std::array::from_fn(|i| {
        let [start, end] = rows.visible[r + i];
        start as usize..end as usize
    });
    let start = visible.iter().fold(0, |most, keys| most.max(keys.start));
    let end = visible.iter().fold(KEYS, |least, keys| least.min(keys.end)).max(start);
    if R > 1 {
        for (i, keys) in visible.iter().enumerate() {
            let before = keys.start..start.min(keys.end);
            register_tile::<S, E, 1, D>(s, rows, v, slots, r + i, at, before, None);
        }
    }
    register_tile::<S, E, R, D>(s, rows, v, slots, r, at, start..end, prefetch);
    if R > 1 {
        for (i, keys) in visible.iter().enumerate() {
            let after = end.max(keys.start)..keys.end;
            register_tile::<S, E, 1, D>(s, rows, v, slots, r + i, at, after, None);
        }
    }
    R
}

/// A register tile: `keys` for `D` vectors of `R` rows.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn register_tile<S: Simd, E: KvElement, const R: usize, const D: usize>(
    s: S,
    rows: &mut Rows<'_>,
    v: KvRows<'_>,
    slots: &[usize; KEYS],
    r: usize,
    at: usize,
    keys: Range<usize>,
    prefetch: Option<Prefetch<'_>>,
) {
    if keys.is_empty() {
        return;
    }
    let place = |i: usize| (r + i) * rows.dim + at * LANES;
    let mut acc = [[s.zero(); D]; R];
    for i in 0..R {
        let from = rows.acc[place(i)..][..D * LANES].as_chunks::<LANES>().0;
        for d in 0..D {
            acc[i][d] = s.load(&from[d]);
        }
    }
    let weights: [&[f32; KEYS]; R] = array(|i| &rows.weights[r + i]);
    let first_block = at / E::VECTORS;
    for key in keys {
        if let Some(prefetch) = &prefetch {
            prefetch.key(key);
        }
        if slots[key] == usize::MAX {
            continue;
        }
        let row = &v.row::<E>(slots[key])[first_block..][..D / E::VECTORS];
        let mut v = [s.zero(); D];
        for d in 0..D {
            v[d] = vector::<S, E>(s, row, d);
        }
        for i in 0..R {
            let weight = s.splat(weights[i][key]);
            for d in 0..D {
                acc[i][d] = s.fma(weight, v[d], acc[i][d]);
            }
        }
    }
    for i in 0..R {
        let start = place(i);
        let to = rows.acc[start..][..D * LANES].as_chunks_mut::<LANES>().0;
        for d in 0..D {
            s.store(acc[i][d], &mut to[d]);
        }
    }
}
