//! The kernel: a tile of queries walks the tiles of keys that it sees.

use super::element::{KvElement, with_element};
use super::kv_rows::{KEYS, KvRows, Prefetch, dequantise};
use super::online_softmax::{self as softmax, OnlineSoftmax, ScoreMod, alibi_slope};
use super::parts::Part;
use super::query_tile::{KvTile, QueryTile};
use super::walk::{Step, Walk};
use super::{scores, values};
use crate::ops::float::F32;
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, array, dispatch};
use crate::tensor::Tensor;

/// Rows up to which keys and values are read from the cache each time, and not dequantised first.
const FEW_ROWS: usize = 8;

// The ways are kernels of their own: one function with all of them takes the compiler a minute.
dispatch! {
    fn from_cache<E: KvElement>(
        state: &mut State<'_>,
        tile: &QueryTile<'_>,
        rows: [KvRows<'_>; 2],
        prefetch: [Prefetch<'_>; 2],
    ) = from_cache_with;
}
dispatch! {
    fn few_rows(state: &mut State<'_>, tile: &QueryTile<'_>, kv: &KvTile, floats: [&[f32]; 2]) = few_rows_with;
    fn many_rows(
        state: &mut State<'_>,
        tile: &QueryTile<'_>,
        kv: &KvTile,
        floats: [&[f32]; 2],
        packed: &mut [[f32; LANES]],
    ) = many_rows_with;
    fn end_split(state: &mut State<'_>) = end_split_with;
    fn write(state: &mut State<'_>, tile: &QueryTile<'_>, head_dim_v: usize) = write_with;
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

/// Computes the tile's rows of the result, or of a split's part of it.
pub fn attend(tile: &QueryTile<'_>, part: Option<Part<'_>>, scratch: &mut Scratch) {
    let isa = tile.isa;
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
    // Rows of one dtype are read from the cache as they are; of two, and for many queries, they are dequantised first.
    let k_cache = KvRows::of_cache(tile.k, tile.kv_head, head_dim);
    let v_cache = KvRows::of_cache(tile.v, tile.kv_head, head_dim_v);
    let cached = k_cache.zip(v_cache).filter(|(k, v)| is_few && k.dtype == v.dtype);
    let prefetch =
        [Prefetch::new(tile.k, tile.kv_head, head_dim), Prefetch::new(tile.v, tile.kv_head, head_dim_v)];
    if let Some((k, v)) = cached {
        with_element!(k.dtype, |E| from_cache::<E>(isa, &mut state, tile, [k, v], prefetch));
    } else {
        let packed = packed.take::<[f32; LANES]>(if is_few { 0 } else { KEYS / LANES * dim });
        let (k, v) = (k.zeroed(KEYS * dim), v.zeroed(KEYS * dim_v));
        let mut walk = Walk::new(tile, prefetch);
        while let Some(Step { tile: kv, starts_split, .. }) = walk.next() {
            if starts_split {
                end_split(isa, &mut state);
            }
            let [of_keys, of_values] = walk.prefetch(&kv);
            let mut floats = |cache: &Tensor, out: &mut [f32], dims: [usize; 2], prefetch: Prefetch<'_>| {
                dequantise(isa, tile, cache, &kv, out, dims, whole_row.take(cache.ne[0]), prefetch);
            };
            floats(tile.k, k, [head_dim, dim], of_values);
            floats(tile.v, v, [head_dim_v, dim_v], of_keys);
            tile.mask(&kv, state.visible);
            if is_few {
                few_rows(isa, &mut state, tile, &kv, [k, v]);
            } else {
                many_rows(isa, &mut state, tile, &kv, [k, v], packed);
            }
        }
        end_split(isa, &mut state);
    }
    match part {
        None => write(isa, &mut state, tile, head_dim_v),
        Some(part) => {
            let sums = state.softmax.iter().zip(state.merged.chunks_exact(dim_v)).enumerate();
            // SAFETY: a split of a row belongs to one tile, which this member took; all are merged after a barrier.
            sums.for_each(|(r, (softmax, merged))| unsafe {
                part.store(tile.row(r), softmax.merged, merged)
            });
        }
    }
}

/// Rows of a tile's dequantised values, by key: those without a slot have none.
fn float_slots(kv: &KvTile) -> [usize; KEYS] {
    array(|i| if kv.slots[i] == usize::MAX { usize::MAX } else { i })
}

/// Few queries, keys and values row by row as they are in the cache.
#[inline(always)]
fn from_cache_with<S: Simd, E: KvElement>(
    s: S,
    state: &mut State<'_>,
    tile: &QueryTile<'_>,
    rows: [KvRows<'_>; 2],
    prefetch: [Prefetch<'_>; 2],
) {
    // Not by a closure: it would not be inlined, and so not be compiled for the instruction set.
    let mut walk = Walk::new(tile, prefetch);
    while let Some(Step { tile: kv, starts_split, first_slot }) = walk.next() {
        if starts_split {
            end_split_with(s, state);
        }
        tile.mask(&kv, state.visible);
        // Dots of keys without a slot are computed as well, with those of another one, and masked.
        let slots = kv.slots.map(|slot| if slot == usize::MAX { first_slot } else { slot });
        row_by_row::<S, E>(s, state, tile, &kv, rows, [&slots, &kv.slots], walk.prefetch(&kv).map(Some));
    }
    end_split_with(s, state);
}

/// A tile for few queries, keys and values row by row, which are floats.
#[inline(always)]
fn few_rows_with<S: Simd>(
    s: S,
    state: &mut State<'_>,
    tile: &QueryTile<'_>,
    kv: &KvTile,
    [k, v]: [&[f32]; 2],
) {
    let rows = [KvRows::of_floats(k, state.rows.dim), KvRows::of_floats(v, state.dim_v)];
    let slots = [&array(|i| i), &float_slots(kv)];
    row_by_row::<S, F32>(s, state, tile, kv, rows, slots, [None; 2]);
}

/// Pairs are of keys and values. The tile's values are prefetched with scores, the next tile's keys with values.
#[inline(always)]
fn row_by_row<S: Simd, E: KvElement>(
    s: S,
    state: &mut State<'_>,
    tile: &QueryTile<'_>,
    kv: &KvTile,
    rows: [KvRows<'_>; 2],
    slots: [&[usize; KEYS]; 2],
    prefetch: [Option<Prefetch<'_>>; 2],
) {
    scores::direct::<S, E>(s, &mut state.rows, rows[0], slots[0], kv.keys.clone(), prefetch[1]);
    update_softmax(s, state, tile, kv);
    values::accumulate::<S, E>(s, &mut state.values(), rows[1], slots[1], prefetch[0]);
}

/// A tile for many queries: keys and values are floats; keys are packed, which costs as much as some queries.
#[inline(always)]
fn many_rows_with<S: Simd>(
    s: S,
    state: &mut State<'_>,
    tile: &QueryTile<'_>,
    kv: &KvTile,
    floats: [&[f32]; 2],
    packed: &mut [[f32; LANES]],
) {
    let groups = kv.keys.start / LANES..kv.keys.end.div_ceil(LANES);
    scores::pack(s, floats[0], state.rows.dim, packed, groups);
    scores::packed(s, &mut state.rows, packed, state.visible);
    update_softmax(s, state, tile, kv);
    let v = KvRows::of_floats(floats[1], state.dim_v);
    values::accumulate::<S, F32>(s, &mut state.values(), v, &float_slots(kv), None);
}

impl State<'_> {
    #[inline(always)]
    fn values(&mut self) -> values::Rows<'_> {
        values::Rows { weights: self.rows.dots, acc: self.acc, dim: self.dim_v, visible: self.visible }
    }
}

/// Dots become weights; sums shrink where a larger score appears. All rows' scores come first: what a row's weights wait
/// for, its largest score, is known by then.
#[inline(always)]
fn update_softmax<S: Simd>(s: S, state: &mut State<'_>, tile: &QueryTile<'_>, kv: &KvTile) {
    let has_slot = array(|key| if kv.slots[key] == usize::MAX { 0.0 } else { 1.0 });
    let all_have = kv.slots.iter().all(|slot| *slot != usize::MAX);
    let has_slot = (!all_have).then_some(&has_slot);
    let sees_some = |visible: [u32; 2]| visible[0] < visible[1];
    for (r, (dots, softmax)) in state.rows.dots.iter_mut().zip(state.softmax.iter_mut()).enumerate() {
        let visible = state.visible[r];
        if sees_some(visible) {
            let [token, head] = tile.row(r);
            let distance = tile.paging.position(tile.seq, token) - kv.start as i64;
            let slope = match tile.p.max_bias > 0.0 {
                true => alibi_slope(head, tile.q.ne[1], tile.p.max_bias),
                false => 0.0,
            };
            let biases = tile.biases.map(|biases| biases_of_keys(biases.row([head, 0, 0]), -distance));
            let biases = biases.as_ref();
            let score_mod = ScoreMod { p: tile.p, biases, slope, distance, visible, has_slot };
            softmax::score(s, &score_mod, dots, softmax);
        }
    }
    let sums = state.softmax.iter_mut().zip(state.acc.chunks_exact_mut(state.dim_v));
    for ((dots, visible), (softmax, acc)) in state.rows.dots.iter_mut().zip(&*state.visible).zip(sums) {
        if sees_some(*visible) {
            softmax::weigh(s, dots, softmax, acc);
        }
    }
}

/// The biases of keys, the first of which is so far after the query.
fn biases_of_keys(biases: &[f32], to_first: i64) -> [f32; KEYS] {
    let far = biases.len() as i64 / 2;
    array(|j| biases[((to_first + j as i64).clamp(-far, far) + far) as usize])
}

/// Ends a split.
#[inline(always)]
fn end_split_with<S: Simd>(s: S, state: &mut State<'_>) {
    let sums = state.acc.chunks_exact_mut(state.dim_v).zip(state.merged.chunks_exact_mut(state.dim_v));
    for (softmax, (acc, merged)) in state.softmax.iter_mut().zip(sums) {
        softmax::end_split(s, softmax, acc, merged);
    }
}

/// Divides by the sums of weights.
#[inline(always)]
fn write_with<S: Simd>(s: S, state: &mut State<'_>, tile: &QueryTile<'_>, head_dim_v: usize) {
    for (r, softmax) in state.softmax.iter().enumerate() {
        let [token, head] = tile.row(r);
        // SAFETY: the tile's heads of the tile's tokens are this thread's alone.
        let y = unsafe { tile.y.part_mut([token, 0, 0], head * head_dim_v..(head + 1) * head_dim_v) };
        let sink = tile.sinks.map(|sinks| sinks[head]);
        softmax::normalise(s, softmax.merged, sink, &state.merged[r * state.dim_v..], y);
    }
}
