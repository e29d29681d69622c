//! The kernel: a tile of queries walks the tiles of keys that it sees.

use super::kv_rows::{KEYS, KvRows, Prefetch, dequantise};
use super::online_softmax::{self as softmax, OnlineSoftmax, ScoreMod, alibi_slope};
use super::query_tile::{KvTile, QueryTile};
use super::{scores, values};
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, array, dispatch};

/// Positions of a KV split, whole tiles.
const SPLIT: usize = 512;
/// Rows up to which keys and values are read from the cache each time, and not dequantised first.
const FEW_ROWS: usize = 8;

dispatch! {
    /// Makes the tile's rows of the result.
    pub fn attend(tile: &QueryTile<'_>, scratch: &mut Scratch) = attend_with;
}

/// What a tile keeps from one tile of keys to the next.
struct State<'a> {
    /// Queries and their dots with the keys, which become weights.
    rows: scores::Rows<'a>,
    /// First key that is seen and the one past the last, per row.
    visible: &'a mut [[u32; 2]],
    softmax: &'a mut [OnlineSoftmax],
    /// Weighted sums of this split's values, [rows, dim_v], dim_v a multiple of 16.
    acc: &'a mut [f32],
    /// The same of the splits before.
    merged: &'a mut [f32],
    dim_v: usize,
}

#[inline(always)]
fn attend_with<S: Simd>(s: S, tile: &QueryTile<'_>, scratch: &mut Scratch) {
    let n_rows = tile.n_rows();
    let head_dim = tile.q.ne[0];
    let head_dim_v = tile.y.ne[0] / tile.q.ne[1];
    let (dim, dim_v) = (head_dim.next_multiple_of(LANES), head_dim_v.next_multiple_of(LANES));
    let Scratch {
        floats: [q, packed, k, v, acc, dots], sums: softmax, panel: visible, rows: whole_row, ..
    } = scratch;
    let q = q.zeroed(n_rows * dim);
    for r in 0..n_rows {
        let [token, head] = tile.row(r);
        q[r * dim..][..head_dim].copy_from_slice(tile.q.row([head, token, 0]));
    }
    let (acc, merged) = acc.zeroed(2 * n_rows * dim_v).split_at_mut(n_rows * dim_v);
    let softmax = softmax.take::<OnlineSoftmax>(n_rows);
    softmax.fill(OnlineSoftmax::EMPTY);
    let rows = scores::Rows { q, dim, dots: dots.take(n_rows) };
    let mut state = State { rows, visible: visible.take(n_rows), softmax, acc, merged, dim_v };

    let is_few = n_rows <= FEW_ROWS;
    let k_cache = KvRows::of_cache(tile.k, tile.kv_head, head_dim).filter(|_| is_few);
    let v_cache = KvRows::of_cache(tile.v, tile.kv_head, head_dim_v).filter(|_| is_few);
    let k_prefetch = Prefetch::new(tile.k, tile.kv_head, head_dim);
    let v_prefetch = Prefetch::new(tile.v, tile.kv_head, head_dim_v);
    let packed = packed.take::<[f32; LANES]>(if is_few { 0 } else { KEYS / LANES * dim });
    let k = k.zeroed(if k_cache.is_some() { 0 } else { KEYS * dim });
    let v = v.zeroed(if v_cache.is_some() { 0 } else { KEYS * dim_v });
    let all = tile.keys();
    let mut next = tile.kv_tile(all.start / KEYS * KEYS, &all);
    // The first ones have nobody who asks for them while something else is at work.
    for key in next.keys.clone() {
        k_prefetch.row(next.slots[key]);
        v_prefetch.row(next.slots[key]);
    }
    while !next.keys.is_empty() {
        let following = tile.kv_tile(next.start + KEYS, &all);
        let kv = std::mem::replace(&mut next, following);
        if kv.start.is_multiple_of(SPLIT) {
            state.merge(s);
        }
        let Some(&any) = kv.slots.iter().find(|slot| **slot != usize::MAX) else { continue };
        tile.mask(&kv, state.visible);

        // While keys are at work their values come, and with values the next keys.
        let prefetch_v = |key: usize| v_prefetch.row(kv.slots[key]);
        let prefetch_k = |key: usize| k_prefetch.row(next.slots[key]);
        match k_cache {
            Some(k) => {
                let slots = kv.slots.map(|slot| if slot == usize::MAX { any } else { slot });
                scores::direct(s, &mut state.rows, k, &slots, kv.keys.clone(), prefetch_v);
            }
            None => {
                dequantise(
                    s,
                    tile,
                    tile.k,
                    &kv,
                    k,
                    [head_dim, dim],
                    whole_row.take(tile.k.ne[0]),
                    prefetch_v,
                );
                if is_few {
                    let k = KvRows::of_floats(k, dim);
                    scores::direct(s, &mut state.rows, k, &array(|i| i), kv.keys.clone(), |_| ());
                } else {
                    let groups = kv.keys.start / LANES..kv.keys.end.div_ceil(LANES);
                    scores::pack(s, k, dim, packed, groups);
                    scores::packed(s, &mut state.rows, packed, state.visible);
                }
            }
        }
        state.update_softmax(s, tile, &kv);
        let mut rows =
            values::Rows { weights: state.rows.dots, acc: state.acc, dim: dim_v, visible: state.visible };
        match v_cache {
            Some(v) => values::accumulate(s, &mut rows, v, &kv.slots, prefetch_k),
            None => {
                dequantise(
                    s,
                    tile,
                    tile.v,
                    &kv,
                    v,
                    [head_dim_v, dim_v],
                    whole_row.take(tile.v.ne[0]),
                    prefetch_k,
                );
                let mut slots = array(|i| i);
                slots
                    .iter_mut()
                    .zip(kv.slots)
                    .for_each(|(to, slot)| *to = if slot == usize::MAX { slot } else { *to });
                values::accumulate(s, &mut rows, KvRows::of_floats(v, dim_v), &slots, |_| ());
            }
        }
    }
    state.merge(s);
    state.write(s, tile, head_dim_v);
}

impl State<'_> {
    /// Dots become weights; sums shrink where a larger score appears. All rows' scores come first: what a row's weights wait
    /// for, its largest score, is known by then.
    #[inline(always)]
    fn update_softmax<S: Simd>(&mut self, s: S, tile: &QueryTile<'_>, kv: &KvTile) {
        let has_slot = array(|key| if kv.slots[key] == usize::MAX { 0.0 } else { 1.0 });
        let all_have = kv.slots.iter().all(|slot| *slot != usize::MAX);
        let has_slot = (!all_have).then_some(&has_slot);
        let sees_some = |visible: [u32; 2]| visible[0] < visible[1];
        for (r, (dots, softmax)) in self.rows.dots.iter_mut().zip(self.softmax.iter_mut()).enumerate() {
            let visible = self.visible[r];
            if sees_some(visible) {
                let (mut slope, mut distance) = (0.0, 0);
                if tile.p.max_bias > 0.0 {
                    let [token, head] = tile.row(r);
                    slope = alibi_slope(head, tile.q.ne[1], tile.p.max_bias);
                    distance = tile.paging.position(tile.seq, token) - kv.start as i64;
                }
                let score_mod = ScoreMod { p: tile.p, slope, distance, visible, has_slot };
                softmax::score(s, &score_mod, dots, softmax);
            }
        }
        let sums = self.softmax.iter_mut().zip(self.acc.chunks_exact_mut(self.dim_v));
        for ((dots, visible), (softmax, acc)) in self.rows.dots.iter_mut().zip(&*self.visible).zip(sums) {
            if sees_some(*visible) {
                softmax::weigh(s, dots, softmax, acc);
            }
        }
    }

    /// Ends a split.
    #[inline(always)]
    fn merge<S: Simd>(&mut self, s: S) {
        let sums = self.acc.chunks_exact_mut(self.dim_v).zip(self.merged.chunks_exact_mut(self.dim_v));
        for (softmax, (acc, merged)) in self.softmax.iter_mut().zip(sums) {
            softmax::merge(s, softmax, acc, merged);
        }
    }

    /// Divides by the sums of weights.
    #[inline(always)]
    fn write<S: Simd>(&mut self, s: S, tile: &QueryTile<'_>, head_dim_v: usize) {
        for (r, softmax) in self.softmax.iter().enumerate() {
            let [token, head] = tile.row(r);
            let factor = softmax::normaliser(s, softmax.merged, tile.sinks.map(|sinks| sinks[head]));
            // SAFETY: the tile's heads of the tile's tokens are this thread's alone.
            let y = unsafe { tile.y.part_mut([token, 0, 0], head * head_dim_v..(head + 1) * head_dim_v) };
            y.iter_mut().zip(&self.merged[r * self.dim_v..]).for_each(|(y, sum)| *y = sum * factor);
        }
    }
}
