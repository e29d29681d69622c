//! States whose columns depend on no other column.

use crate::simd::{LANES, Simd, array};

/// A token whose state takes in k ⊗ v: S_ij = gᵢ S_ij + kᵢ v_j, and y_j = Σᵢ qᵢ S_ij, of the state
/// before where `BEFORE`, else of the one after.
#[inline(always)]
pub fn step<S: Simd, const BEFORE: bool>(s: S, [k, v, q, g]: [&[f32]; 4], state: &mut [f32], y: &mut [f32]) {
    const WIDE: usize = 4;
    let (width, mut start) = (v.len(), 0);
    while start + WIDE * LANES <= width {
        columns::<S, BEFORE, WIDE>(s, [k, v, q, g], state, y, start);
        start += WIDE * LANES;
    }
    while start + LANES <= width {
        columns::<S, BEFORE, 1>(s, [k, v, q, g], state, y, start);
        start += LANES;
    }
    if start < width {
        let (v, mut sum) = (s.load_part(&v[start..]), s.zero());
        for (i, row) in state.chunks_exact_mut(width).enumerate() {
            let (old, kv) = (s.load_part(&row[start..]), s.mul(s.splat(k[i]), v));
            let new = s.fma(old, s.splat(g[i]), kv);
            s.store_part(new, &mut row[start..]);
            sum = s.fma(s.splat(q[i]), if BEFORE { old } else { new }, sum);
        }
        s.store_part(sum, &mut y[start..]);
    }
}

/// [`step`] of N vectors of columns.
#[inline(always)]
fn columns<S: Simd, const BEFORE: bool, const N: usize>(
    s: S,
    [k, v, q, g]: [&[f32]; 4],
    state: &mut [f32],
    y: &mut [f32],
    start: usize,
) {
    let (width, part) = (v.len(), start..start + N * LANES);
    let (v, _) = v[part.clone()].as_chunks::<LANES>();
    let v: [S::F; N] = array(|n| s.load(&v[n]));
    let mut sums = [s.zero(); N];
    for (((row, k), q), g) in state.chunks_exact_mut(width).zip(k).zip(q).zip(g) {
        let (k, q, g) = (s.splat(*k), s.splat(*q), s.splat(*g));
        let (row, _) = row[part.clone()].as_chunks_mut::<LANES>();
        for ((row, v), sum) in row.iter_mut().zip(v).zip(&mut sums) {
            let old = s.load(row);
            let new = s.fma(old, g, s.mul(k, v));
            s.store(new, row);
            *sum = s.fma(q, if BEFORE { old } else { new }, *sum);
        }
    }
    let (y, _) = y[part].as_chunks_mut::<LANES>();
    y.iter_mut().zip(sums).for_each(|(y, sum)| s.store(sum, y));
}
