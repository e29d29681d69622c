//! Many queries: keys are packed, lane by key.

use super::Rows;
use crate::ops::attention::kv_rows::KEYS;
use crate::simd::{LANES, Simd, array};
use std::ops::Range;

/// Vectors of 16 keys in a tile.
const GROUPS: usize = KEYS / LANES;
/// Rows of a register tile.
const R: usize = 4;

/// Packs keys: [64, dim] to [4][dim][16], transposed 16 by 4.
#[inline(always)]
pub fn pack<S: Simd>(s: S, keys: &[f32], dim: usize, packed: &mut [[f32; LANES]], groups: Range<usize>) {
    // SAFETY: floats are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(keys.as_ptr().cast::<u8>(), size_of_val(keys)) };
    for group in groups {
        let to = &mut packed[group * dim..][..dim];
        for (i, to) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let four = s.transpose(&bytes[4 * dim * LANES * group + 16 * i..], 4 * dim);
            for j in 0..4 {
                s.store(s.from_bits(four[j]), &mut to[j]);
            }
        }
    }
}

/// Dots with packed keys; those that no row sees may or may not be made. There are 4 rows or more.
#[inline(always)]
pub fn packed<S: Simd>(s: S, rows: &mut Rows<'_>, packed: &[[f32; LANES]], visible: &[[u32; 2]]) {
    let n_rows = rows.dots.len();
    // Half of the keys at a time, which stay in the first cache while the rows pass.
    for first in (0..GROUPS).step_by(2) {
        for r in (0..n_rows).step_by(4).map(|r| r.min(n_rows - 4)) {
            let is_visible = |group: usize| {
                let keys = (group * LANES) as u32..((group + 1) * LANES) as u32;
                visible[r..r + 4].iter().any(|[start, end]| *start < keys.end && keys.start < *end)
            };
            match [first, first + 1].map(is_visible) {
                [true, true] if S::WIDE => register_tile::<S, 2>(s, rows, packed, first, r),
                is_visible => {
                    for i in (0..2).filter(|i| is_visible[*i]) {
                        register_tile::<S, 1>(s, rows, packed, first + i, r);
                    }
                }
            }
        }
    }
}

/// A register tile: dots of 4 rows with `G` groups of 16 keys.
#[inline(always)]
fn register_tile<S: Simd, const G: usize>(
    s: S,
    rows: &mut Rows<'_>,
    packed: &[[f32; LANES]],
    first: usize,
    r: usize,
) {
    let dim = rows.dim;
    let q: [&[[f32; LANES]]; R] = array(|i| &rows.q(r + i)[..dim / LANES]);
    let k: [&[[[f32; LANES]; LANES]]; G] =
        array(|g| &packed[(first + g) * dim..][..dim].as_chunks().0[..dim / LANES]);
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
    add(s, of_two(s, q, k, i), of_two(s, q, k, i + 4))
}

/// Partial sums of lanes `i` and `i + 8`.
#[inline(always)]
fn of_two<S: Simd, const G: usize>(
    s: S,
    q: [&[[f32; LANES]]; R],
    k: [&[[[f32; LANES]; LANES]]; G],
    i: usize,
) -> Block<S, G> {
    if S::WIDE {
        let [a, b] = partial(s, q, k, [i, i + 8]);
        add(s, a, b)
    } else {
        let ([a], [b]) = (partial(s, q, k, [i]), partial(s, q, k, [i + 8]));
        add(s, a, b)
    }
}

/// Partial sums of `L` lanes at a time: as many chains of additions as hide their latency.
#[inline(always)]
fn partial<S: Simd, const G: usize, const L: usize>(
    s: S,
    q: [&[[f32; LANES]]; R],
    k: [&[[[f32; LANES]; LANES]]; G],
    lanes: [usize; L],
) -> [Block<S, G>; L] {
    let n = k[0].len();
    let q: [&[[f32; LANES]]; R] = array(|i| &q[i][..n]);
    let k: [&[[[f32; LANES]; LANES]]; G] = array(|g| &k[g][..n]);
    let mut sums = [[[s.zero(); G]; R]; L];
    for c in 0..n {
        for l in 0..L {
            let k: [S::F; G] = array(|g| s.load(&k[g][c][lanes[l]]));
            for i in 0..R {
                let q = s.splat(q[i][c][lanes[l]]);
                for g in 0..G {
                    sums[l][i][g] = s.fma(q, k[g], sums[l][i][g]);
                }
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
