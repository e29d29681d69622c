//! Few queries: keys in the layout of the cache, lane by dim.

use super::Rows;
use crate::ops::attention::element::{KvElement, vector};
use crate::ops::attention::kv_rows::{KEYS, KvRows, Prefetch};
use crate::simd::{LANES, Simd, array};
use std::ops::Range;

/// Dots with keys in `slots`; those outside of `keys` may or may not be made. `prefetch` covers every key.
#[inline(always)]
pub fn direct<S: Simd, E: KvElement>(
    s: S,
    rows: &mut Rows<'_>,
    k: KvRows<'_>,
    slots: &[usize; KEYS],
    keys: Range<usize>,
    prefetch: Option<Prefetch<'_>>,
) {
    let n_rows = rows.dots.len();
    for first in (keys.start / LANES * LANES..keys.end).step_by(LANES) {
        if let Some(prefetch) = &prefetch {
            (first..first + LANES).for_each(|key| prefetch.key(key));
        }
        // The last rows go with some before them, for which the same comes out again.
        if n_rows == 1 || !S::TILED {
            for r in 0..n_rows {
                register_tile::<S, E, 1, 16>(s, rows, k, slots, first, r);
            }
        } else if n_rows < 4 || !S::WIDE {
            for r in (0..n_rows).step_by(2) {
                register_tile::<S, E, 2, 8>(s, rows, k, slots, first, r.min(n_rows - 2));
            }
        } else {
            for r in (0..n_rows).step_by(4) {
                register_tile::<S, E, 4, 4>(s, rows, k, slots, first, r.min(n_rows - 4));
            }
        }
    }
}

/// A register tile: dots of `R` rows with 16 keys, `K` (16 / R) keys at a time, or a quarter of them where there are few
/// registers: R is then at most 2.
#[inline(always)]
fn register_tile<S: Simd, E: KvElement, const R: usize, const K: usize>(
    s: S,
    rows: &mut Rows<'_>,
    k: KvRows<'_>,
    slots: &[usize; KEYS],
    first: usize,
    r: usize,
) {
    for key in (first..first + LANES).step_by(K) {
        let mut sums = [s.zero(); LANES];
        if S::WIDE {
            partial_sums::<S, E, R, K, K>(s, rows, k, slots, key, r, 0, &mut sums);
        } else {
            for at in (0..K).step_by(4 / R.min(2)) {
                if R == 1 {
                    partial_sums::<S, E, R, 4, K>(s, rows, k, slots, key + at, r, at, &mut sums);
                } else {
                    partial_sums::<S, E, R, 2, K>(s, rows, k, slots, key + at, r, at, &mut sums);
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
fn partial_sums<S: Simd, E: KvElement, const R: usize, const K: usize, const ALL: usize>(
    s: S,
    rows: &Rows<'_>,
    k: KvRows<'_>,
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
