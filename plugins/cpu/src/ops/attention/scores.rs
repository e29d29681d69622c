//! q · k: 16 partial sums by dim modulo 16, then their sum, upper half onto lower half until one is left.
//!
//! Few queries meet keys as they lie in the cache, lane by dim. For many, keys are turned over, lane by key: that costs
//! as much as some queries, and then no sum goes across lanes. Both are the same sum.

use super::numbers::{Element, KEYS, Numbers, vector, with_element};
use crate::simd::{LANES, Simd, array};
use std::ops::Range;

/// Vectors of 16 keys in a tile.
const GROUPS: usize = KEYS / LANES;

/// Queries [rows, dim], dim a multiple of 16, and what becomes of them.
pub struct Rows<'a> {
    pub q: &'a [f32],
    pub dim: usize,
    /// Dots with the keys of the tile.
    pub dots: &'a mut [[f32; KEYS]],
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn q(&self, r: usize) -> &[[f32; LANES]] {
        self.q[r * self.dim..][..self.dim].as_chunks().0
    }
}

/// Dots with keys in `slots`; those outside of `keys` may or may not be made. `passing` is called for every key.
#[inline(always)]
pub fn few<S: Simd>(
    s: S,
    rows: &mut Rows<'_>,
    k: Numbers<'_>,
    slots: &[usize; KEYS],
    keys: Range<usize>,
    passing: impl Fn(usize),
) {
    with_element!(k.dtype, |E| few_of::<S, E>(s, rows, k, slots, keys, passing))
}

#[inline(always)]
fn few_of<S: Simd, E: Element>(
    s: S,
    rows: &mut Rows<'_>,
    k: Numbers<'_>,
    slots: &[usize; KEYS],
    keys: Range<usize>,
    passing: impl Fn(usize),
) {
    let n_rows = rows.dots.len();
    for first in (keys.start / LANES * LANES..keys.end).step_by(LANES) {
        (first..first + LANES).for_each(&passing);
        // The last rows go with some before them, for which the same comes out again.
        if n_rows == 1 {
            block::<S, E, 1, 16>(s, rows, k, slots, first, 0);
        } else if n_rows < 4 || !S::WIDE {
            for r in (0..n_rows).step_by(2) {
                block::<S, E, 2, 8>(s, rows, k, slots, first, r.min(n_rows - 2));
            }
        } else {
            for r in (0..n_rows).step_by(4) {
                block::<S, E, 4, 4>(s, rows, k, slots, first, r.min(n_rows - 4));
            }
        }
    }
}

/// Dots of `R` rows with 16 keys, `K` (16 / R) keys at a time, or a quarter of them where there are few
/// registers: R is then at most 2.
#[inline(always)]
fn block<S: Simd, E: Element, const R: usize, const K: usize>(
    s: S,
    rows: &mut Rows<'_>,
    k: Numbers<'_>,
    slots: &[usize; KEYS],
    first: usize,
    r: usize,
) {
    for key in (first..first + LANES).step_by(K) {
        let mut sums = [s.zero(); LANES];
        if S::WIDE {
            sum_lanes::<S, E, R, K, K>(s, rows, k, slots, key, r, 0, &mut sums);
        } else {
            for at in (0..K).step_by(4 / R.min(2)) {
                if R == 1 {
                    sum_lanes::<S, E, R, 4, K>(s, rows, k, slots, key + at, r, at, &mut sums);
                } else {
                    sum_lanes::<S, E, R, 2, K>(s, rows, k, slots, key + at, r, at, &mut sums);
                }
            }
        }
        let mut dots = [0.0; LANES];
        s.store(s.sums(sums), &mut dots);
        for (to, dots) in rows.dots[r..r + R].iter_mut().zip(dots.as_chunks::<K>().0) {
            to[key..key + K].copy_from_slice(dots);
        }
    }
}

/// Partial sums of each of `R` rows with `K` keys, to places `at`.. of those of `ALL` keys.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn sum_lanes<S: Simd, E: Element, const R: usize, const K: usize, const ALL: usize>(
    s: S,
    rows: &Rows<'_>,
    k: Numbers<'_>,
    slots: &[usize; KEYS],
    key: usize,
    r: usize,
    at: usize,
    out: &mut [S::F; LANES],
) {
    let n = rows.dim / LANES / E::VECTORS;
    let q: [&[[f32; LANES]]; R] = array(|i| &rows.q(r + i)[..n * E::VECTORS]);
    let k: [&[E::Block]; K] = array(|i| &k.row::<E>(slots[key + i])[..n]);
    let mut sums = [[s.zero(); K]; R];
    for c in 0..n * E::VECTORS {
        let mut of_rows = [s.zero(); R];
        for row in 0..R {
            of_rows[row] = s.load(&q[row][c]);
        }
        for i in 0..K {
            let k = vector::<S, E>(s, k[i], c);
            for row in 0..R {
                sums[row][i] = s.fma(of_rows[row], k, sums[row][i]);
            }
        }
    }
    for row in 0..R {
        for i in 0..K {
            out[row * ALL + at + i] = sums[row][i];
        }
    }
}

/// Keys [64, dim] to [4][dim][16].
#[inline(always)]
pub fn turn_over<S: Simd>(s: S, keys: &[f32], dim: usize, turned: &mut [[f32; LANES]], groups: Range<usize>) {
    // SAFETY: floats are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(keys.as_ptr().cast::<u8>(), size_of_val(keys)) };
    for group in groups {
        let to = &mut turned[group * dim..][..dim];
        for (i, to) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let four = s.transpose(&bytes[4 * dim * LANES * group + 16 * i..], 4 * dim);
            for j in 0..4 {
                s.store(s.from_bits(four[j]), &mut to[j]);
            }
        }
    }
}

/// Dots with keys that were turned over; those of no row's `seen` keys may or may not be made. There are 4 rows or more.
#[inline(always)]
pub fn many<S: Simd>(s: S, rows: &mut Rows<'_>, turned: &[[f32; LANES]], seen: &[[u32; 2]]) {
    let n_rows = rows.dots.len();
    // Half of the keys at a time, which stay in the first cache while the rows pass.
    for first in (0..GROUPS).step_by(2) {
        for r in (0..n_rows).step_by(4).map(|r| r.min(n_rows - 4)) {
            let is_seen = |group: usize| {
                let keys = (group * LANES) as u32..((group + 1) * LANES) as u32;
                seen[r..r + 4].iter().any(|[start, end]| *start < keys.end && keys.start < *end)
            };
            match [first, first + 1].map(is_seen) {
                [true, true] if S::WIDE => columns::<S, 2>(s, rows, turned, first, r),
                wanted => {
                    for i in (0..2).filter(|i| wanted[*i]) {
                        columns::<S, 1>(s, rows, turned, first + i, r);
                    }
                }
            }
        }
    }
}

/// Rows at a time that meet keys turned over.
const R: usize = 4;

/// Dots of 4 rows with `G` groups of 16 keys.
#[inline(always)]
fn columns<S: Simd, const G: usize>(
    s: S,
    rows: &mut Rows<'_>,
    turned: &[[f32; LANES]],
    first: usize,
    r: usize,
) {
    let dim = rows.dim;
    let q: [&[[f32; LANES]]; R] = array(|i| &rows.q(r + i)[..dim / LANES]);
    let k: [&[[[f32; LANES]; LANES]]; G] =
        array(|g| &turned[(first + g) * dim..][..dim].as_chunks().0[..dim / LANES]);
    let (a, b) =
        (add(s, of_four(s, q, k, 0), of_four(s, q, k, 2)), add(s, of_four(s, q, k, 1), of_four(s, q, k, 3)));
    let sums = add(s, a, b);
    for i in 0..R {
        for (to, sum) in rows.dots[r + i].as_chunks_mut::<LANES>().0[first..].iter_mut().zip(sums[i]) {
            s.store(sum, to);
        }
    }
}

/// Numbers of each row and group.
type Block<S, const G: usize> = [[<S as Simd>::F; G]; R];

/// Partial sums of lanes `i`, `i + 4`, and so on.
#[inline(always)]
fn of_four<S: Simd, const G: usize>(
    s: S,
    q: [&[[f32; LANES]]; R],
    k: [&[[[f32; LANES]; LANES]]; G],
    i: usize,
) -> Block<S, G> {
    let a = add(s, partial(s, q, k, i), partial(s, q, k, i + 8));
    add(s, a, add(s, partial(s, q, k, i + 4), partial(s, q, k, i + 12)))
}

#[inline(always)]
fn partial<S: Simd, const G: usize>(
    s: S,
    q: [&[[f32; LANES]]; R],
    k: [&[[[f32; LANES]; LANES]]; G],
    lane: usize,
) -> Block<S, G> {
    let n = k[0].len();
    let q: [&[[f32; LANES]]; R] = array(|i| &q[i][..n]);
    let k: [&[[[f32; LANES]; LANES]]; G] = array(|g| &k[g][..n]);
    let mut sums = [[s.zero(); G]; R];
    for c in 0..n {
        let k: [S::F; G] = array(|g| s.load(&k[g][c][lane]));
        for i in 0..R {
            let q = s.splat(q[i][c][lane]);
            for g in 0..G {
                sums[i][g] = s.fma(q, k[g], sums[i][g]);
            }
        }
    }
    sums
}

#[inline(always)]
fn add<S: Simd, const G: usize>(s: S, mut a: Block<S, G>, b: Block<S, G>) -> Block<S, G> {
    for i in 0..R {
        for g in 0..G {
            a[i][g] = s.add(a[i][g], b[i][g]);
        }
    }
    a
}
