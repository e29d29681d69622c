//! Σ weight · v of a tile's keys, in order of position, added to the sums of each row.

use super::numbers::{Element, KEYS, Numbers, vector, with_element};
use crate::simd::{LANES, Simd, array};
use std::ops::Range;

/// Weights of the keys, and sums [rows, dim], dim a multiple of 16.
pub struct Rows<'a> {
    pub weights: &'a [[f32; KEYS]],
    pub sums: &'a mut [f32],
    pub dim: usize,
    /// First key of the tile that is seen and the one past the last.
    pub seen: &'a [[u32; 2]],
}

/// Adds values in `slots`; keys whose slot is `usize::MAX` have none.
#[inline(always)]
pub fn add<S: Simd>(
    s: S,
    rows: &mut Rows<'_>,
    v: Numbers<'_>,
    slots: &[usize; KEYS],
    passing: impl Fn(usize),
) {
    with_element!(v.dtype, |E| add_of::<S, E>(s, rows, v, slots, passing))
}

#[inline(always)]
fn add_of<S: Simd, E: Element>(
    s: S,
    rows: &mut Rows<'_>,
    v: Numbers<'_>,
    slots: &[usize; KEYS],
    passing: impl Fn(usize),
) {
    let n_vectors = rows.dim / LANES;
    let mut at = 0;
    while at < n_vectors {
        let first = at == 0;
        // Blocks of two vectors come in pairs, so the odd one is a block.
        let step = match n_vectors - at {
            4.. if S::WIDE || rows.seen.len() == 1 => 4,
            2.. => 2,
            _ => 1,
        };
        let mut r = 0;
        while r < rows.seen.len() {
            let ask = |key: usize| {
                if first && r == 0 {
                    passing(key);
                }
            };
            let left = rows.seen.len() - r;
            r += match (step, left) {
                (4, 4..) if S::WIDE => together::<S, E, 4, 4>(s, rows, v, slots, r, at, ask),
                (4, 2..) if S::WIDE => together::<S, E, 2, 4>(s, rows, v, slots, r, at, ask),
                (4, _) => together::<S, E, 1, 4>(s, rows, v, slots, r, at, ask),
                (2, 2..) => together::<S, E, 2, 2>(s, rows, v, slots, r, at, ask),
                (2, _) => together::<S, E, 1, 2>(s, rows, v, slots, r, at, ask),
                _ => together::<S, E, 1, 1>(s, rows, v, slots, r, at, ask),
            };
        }
        at += step;
    }
}

/// Elements of `D` vectors of `R` rows: keys that all see together, those before and after row by row. Gives R.
#[inline(always)]
fn together<S: Simd, E: Element, const R: usize, const D: usize>(
    s: S,
    rows: &mut Rows<'_>,
    v: Numbers<'_>,
    slots: &[usize; KEYS],
    r: usize,
    at: usize,
    passing: impl Fn(usize),
) -> usize {
    let seen: [Range<usize>; R] = std::array::from_fn(|i| {
        let [start, end] = rows.seen[r + i];
        start as usize..end as usize
    });
    let start = seen.iter().fold(0, |most, seen| most.max(seen.start));
    let end = seen.iter().fold(KEYS, |least, seen| least.min(seen.end)).max(start);
    if R > 1 {
        for (i, seen) in seen.iter().enumerate() {
            block::<S, E, 1, D>(s, rows, v, slots, r + i, at, seen.start..start.min(seen.end), |_| ());
        }
    }
    block::<S, E, R, D>(s, rows, v, slots, r, at, start..end, passing);
    if R > 1 {
        for (i, seen) in seen.iter().enumerate() {
            block::<S, E, 1, D>(s, rows, v, slots, r + i, at, end.max(seen.start)..seen.end, |_| ());
        }
    }
    R
}

#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn block<S: Simd, E: Element, const R: usize, const D: usize>(
    s: S,
    rows: &mut Rows<'_>,
    v: Numbers<'_>,
    slots: &[usize; KEYS],
    r: usize,
    at: usize,
    keys: Range<usize>,
    passing: impl Fn(usize),
) {
    if keys.is_empty() {
        return;
    }
    let place = |i: usize| (r + i) * rows.dim + at * LANES;
    let mut sums = [[s.zero(); D]; R];
    for i in 0..R {
        let from = rows.sums[place(i)..][..D * LANES].as_chunks::<LANES>().0;
        for d in 0..D {
            sums[i][d] = s.load(&from[d]);
        }
    }
    let weights: [&[f32; KEYS]; R] = array(|i| &rows.weights[r + i]);
    let first_block = at / E::VECTORS;
    for key in keys {
        passing(key);
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
                sums[i][d] = s.fma(weight, v[d], sums[i][d]);
            }
        }
    }
    for i in 0..R {
        let start = place(i);
        let to = rows.sums[start..][..D * LANES].as_chunks_mut::<LANES>().0;
        for d in 0..D {
            s.store(sums[i][d], &mut to[d]);
        }
    }
}
