//! The kernel of attention: one unit, tile by tile of 16 keys.

use super::paging::Paging;
use super::rows;
use crate::quant;
use crate::scratch::Scratch;
use crate::simd::{Isa, LANES, Simd, dispatch, math};
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use llmrt_plugin::abi::op::AttentionParams;
use std::ops::Range;

/// Queries of one sequence, with heads that share a KV head.
pub struct Unit<'a> {
    pub isa: Isa,
    pub p: &'a AttentionParams,
    pub paging: Paging<'a>,
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub y: &'a Tensor,
    pub sinks: Option<&'a [f32]>,
    pub seq: usize,
    pub kv_head: usize,
    pub heads: Range<usize>,
    pub tokens: Range<usize>,
}

dispatch! {
    /// Makes the unit's rows of the result.
    pub fn attend(u: &Unit<'_>, scratch: &mut Scratch) = attend_with;
}

/// Keys of a tile.
const KEYS: usize = LANES;

/// Memory of a unit. Row r is head r mod n of token r / n.
struct State<'a> {
    /// Queries [rows, dim], dim padded with zeros to a multiple of 4.
    q: &'a [f32],
    dim: usize,
    /// Weighted sums of values [rows, dim_v], dim_v padded to a multiple of 16.
    sums: &'a mut [f32],
    dim_v: usize,
    /// Weights of the tile's keys, per row.
    weights: &'a mut [[f32; KEYS]],
    /// Largest score so far and sum of weights, per row.
    softmax: &'a mut [f32],
    /// First key of the tile that is seen and the one past the last, per row.
    seen: &'a mut [[u32; 2]],
}

/// Keys and values of a tile.
struct Tile<'a> {
    /// Position of the first key.
    start: usize,
    /// 1 where the key has a slot.
    there: [f32; KEYS],
    /// Keys turned over: [dim][16].
    k: &'a [[f32; KEYS]],
    /// Values [16, dim_v]; zeros where there is none.
    v: &'a [f32],
}

#[inline(always)]
fn attend_with<S: Simd>(s: S, u: &Unit<'_>, scratch: &mut Scratch) {
    let n_rows = u.tokens.len() * u.heads.len();
    let head_dim = u.q.ne[0];
    let head_dim_v = u.y.ne[0] / u.q.ne[1];
    let (dim, dim_v) = (head_dim.next_multiple_of(4).max(4), head_dim_v.next_multiple_of(LANES));
    let Scratch { floats: [q, k, stage, v, sums, weights], sums: softmax, panel: seen, rows, .. } = scratch;
    let q = q.zeroed(n_rows * dim);
    for (r, q) in q.chunks_exact_mut(dim).enumerate() {
        let (token, head) = (u.tokens.start + r / u.heads.len(), u.heads.start + r % u.heads.len());
        q[..head_dim].copy_from_slice(u.q.row([head, token, 0]));
    }
    let softmax = softmax.zeroed(2 * n_rows);
    softmax.chunks_exact_mut(2).for_each(|row| row[0] = f32::NEG_INFINITY);
    let mut state = State {
        q,
        dim,
        sums: sums.zeroed(n_rows * dim_v),
        dim_v,
        weights: weights.take(n_rows),
        softmax,
        seen: seen.take(n_rows),
    };

    let (k, v, stage) = (k.take::<[f32; KEYS]>(dim), v.zeroed(KEYS * dim_v), stage.zeroed(KEYS * dim));
    let visible = |token: usize| u.paging.visible(u.paging.position(u.seq, token));
    let first = visible(u.tokens.start).start;
    let in_table = u.paging.table.ne[0].saturating_mul(u.paging.block_size);
    let end = visible(u.tokens.end - 1).end.min(in_table);
    let slots_of = |start: usize| -> [Option<usize>; KEYS] {
        crate::simd::array(|j| {
            let key = start + j;
            if (first..end).contains(&key) { u.paging.slot(u.seq, key) } else { None }
        })
    };
    let mut ahead = slots_of(first / KEYS * KEYS);
    for start in (first / KEYS * KEYS..end).step_by(KEYS) {
        let slots = std::mem::replace(&mut ahead, slots_of(start + KEYS));
        for cache in [u.k, u.v] {
            ahead.iter().flatten().for_each(|&slot| ask_for_head(s, cache, slot, u.kv_head, u.p.n_kv_heads));
        }
        let turned = head_dim > 0 && consecutive(&slots) && turn_over_cache(s, u, slots[0], k);
        for (j, slot) in slots.iter().enumerate() {
            let (k_row, v_row) = (&mut stage[j * dim..][..head_dim], &mut v[j * dim_v..][..head_dim_v]);
            match slot {
                Some(slot) => {
                    let temporary = rows.take::<f32>(u.k.ne[0].max(u.v.ne[0]));
                    if !turned {
                        head_of(s, u.isa, u.k, *slot, u.kv_head, k_row, temporary);
                    }
                    head_of(s, u.isa, u.v, *slot, u.kv_head, v_row, temporary);
                }
                None => v_row.fill(0.0),
            }
        }
        if !turned {
            turn_over(s, stage, dim, k);
        }
        let there = slots.map(|slot| if slot.is_some() { 1.0 } else { 0.0 });
        let tile = Tile { start, there, k, v };
        add_tile(s, u, &tile, &mut state);
    }
    finish(s, u, head_dim_v, &mut state);
}

/// Whether the keys' slots follow each other, those without a slot last.
fn consecutive(slots: &[Option<usize>; KEYS]) -> bool {
    let first = slots[0];
    first.is_some()
        && slots.iter().enumerate().all(|(j, slot)| slot.is_none_or(|s| s.checked_sub(j) == first))
}

/// Asks for the part of a cache row that belongs to a KV head: rows lie too far apart for the machine to foresee.
#[inline(always)]
fn ask_for_head<S: Simd>(s: S, cache: &Tensor, slot: usize, kv_head: usize, n_kv_heads: u32) {
    let n_bytes = cache.ne[0] / cache.dtype.block_elems() * cache.dtype.block_bytes() / n_kv_heads as usize;
    let start = cache.bytes().as_ptr().wrapping_add(cache.offset_of([slot, 0, 0]) + kv_head * n_bytes);
    (0..n_bytes).step_by(64).for_each(|line| s.prefetch(start.wrapping_add(line)));
}

/// The part of a cache row that belongs to a KV head.
#[inline(always)]
fn head_of<S: Simd>(
    s: S,
    isa: Isa,
    cache: &Tensor,
    slot: usize,
    kv_head: usize,
    out: &mut [f32],
    temporary: &mut [f32],
) {
    let bytes = cache.row_bytes([slot, 0, 0]);
    let (elems, size) = (cache.dtype.block_elems(), cache.dtype.block_bytes());
    let n = out.len();
    if !n.is_multiple_of(elems) {
        let whole = &mut temporary[..cache.ne[0]];
        rows::decode(isa, cache.dtype, bytes, whole);
        return out.copy_from_slice(&whole[kv_head * n..][..n]);
    }
    let bytes = &bytes[kv_head * n / elems * size..][..n / elems * size];
    match cache.dtype {
        DType::F16 if n.is_multiple_of(LANES) => {
            for (v, to) in bytes.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<LANES>().0) {
                s.store(s.load_f16(v), to);
            }
        }
        DType::Q8_0 => rows::from_q8_0_with(s, bytes, out),
        dtype => rows::decode(isa, dtype, bytes, out),
    }
}

/// Keys in 16 consecutive slots straight from the cache to [dim][16]; false if the dtype or dim has no such way.
/// Slots past the last key are in the cache, and what comes of them is not seen.
#[inline(always)]
fn turn_over_cache<S: Simd>(s: S, u: &Unit<'_>, first: Option<usize>, k: &mut [[f32; KEYS]]) -> bool {
    let (cache, dim) = (u.k, u.q.ne[0]);
    let Some(first) = first.filter(|first| first + KEYS <= cache.ne[1]) else { return false };
    let (elems, size, stride) = (cache.dtype.block_elems(), cache.dtype.block_bytes(), cache.nb[1]);
    let start = cache.offset_of([first, 0, 0]) + u.kv_head * dim / elems * size;
    let bytes = &cache.bytes()[start..];
    match cache.dtype {
        DType::F32 if dim % 4 == 0 => {
            for (i, to) in k.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let turned = s.transpose(&bytes[16 * i..], stride);
                for j in 0..4 {
                    s.store(s.from_bits(turned[j]), &mut to[j]);
                }
            }
        }
        DType::F16 if dim % 8 == 0 => {
            for (i, to) in k.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let turned = s.transpose(&bytes[16 * i..], stride);
                for j in 0..4 {
                    s.store(s.halves(turned[j]), &mut to[2 * j]);
                    s.store(s.halves(s.shr(turned[j], 16)), &mut to[2 * j + 1]);
                }
            }
        }
        DType::Q8_0 if dim % 32 == 0 => {
            let sign = s.splat_i(128);
            for (block, to) in k.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let bytes = &bytes[block * size..];
                let d = s.gather_f16(bytes, stride);
                let turned = quant::transpose_32(s, &bytes[2..], stride);
                for j in 0..8 {
                    for b in 0..4 {
                        let q = s.sub_i(s.xor(quant::byte(s, turned[j], b), sign), sign);
                        s.store(s.mul(s.float(q), d), &mut to[4 * j + b]);
                    }
                }
            }
        }
        _ => return false,
    }
    true
}

/// [16, dim] to [dim][16].
#[inline(always)]
fn turn_over<S: Simd>(s: S, stage: &[f32], dim: usize, k: &mut [[f32; KEYS]]) {
    // SAFETY: floats are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(stage.as_ptr().cast::<u8>(), size_of_val(stage)) };
    for (i, to) in k.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let turned = s.transpose(&bytes[16 * i..], 4 * dim);
        for j in 0..4 {
            s.store(s.from_bits(turned[j]), &mut to[j]);
        }
    }
}

/// Lets all queries that see keys of the tile take them in.
#[inline(always)]
fn add_tile<S: Simd>(s: S, u: &Unit<'_>, tile: &Tile<'_>, state: &mut State<'_>) {
    let n_heads = u.heads.len();
    for (token, rows) in u.tokens.clone().zip(state.seen.chunks_exact_mut(n_heads)) {
        let visible = u.paging.visible(u.paging.position(u.seq, token));
        let clamp = |at: usize| (at.clamp(tile.start, tile.start + KEYS) - tile.start) as u32;
        rows.fill([clamp(visible.start), clamp(visible.end)]);
    }
    let n_rows = state.weights.len();
    let mut r = 0;
    while r < n_rows {
        if S::WIDE && r + 6 <= n_rows {
            dots::<S, 6>(s, tile, state, r);
            r += 6;
        } else {
            dots::<S, 1>(s, tile, state, r);
            r += 1;
        }
    }
    for r in 0..n_rows {
        let [start, end] = state.seen[r];
        if start < end {
            weigh(s, u, tile, state, r, start..end);
        }
    }
    let mut r = 0;
    while r < n_rows {
        let [start, end] = state.seen[r];
        let keys = start as usize..end as usize;
        if S::WIDE && r + 4 <= n_rows && state.seen[r..r + 4].iter().all(|seen| *seen == [start, end]) {
            add_values::<S, 4>(s, tile, state, r, keys);
            r += 4;
        } else {
            add_values::<S, 1>(s, tile, state, r, keys);
            r += 1;
        }
    }
}

/// q · k of `R` rows with the 16 keys: four partial sums by dim modulo 4.
#[inline(always)]
fn dots<S: Simd, const R: usize>(s: S, tile: &Tile<'_>, state: &mut State<'_>, r: usize) {
    let dim = state.dim;
    let q: [&[[f32; 4]]; R] = crate::simd::array(|i| state.q[(r + i) * dim..][..dim].as_chunks::<4>().0);
    let mut sums = [[s.zero(); 4]; R];
    for (d, k) in tile.k.as_chunks::<4>().0.iter().enumerate() {
        for part in 0..4 {
            let k = s.load(&k[part]);
            for i in 0..R {
                sums[i][part] = s.fma(s.splat(q[i][d][part]), k, sums[i][part]);
            }
        }
    }
    for i in 0..R {
        let [a, b, c, d] = sums[i];
        s.store(s.add(s.add(a, b), s.add(c, d)), &mut state.weights[r + i]);
    }
}

/// Turns dots into weights, with the running softmax: sums so far shrink when a larger score appears.
#[inline(always)]
fn weigh<S: Simd>(s: S, u: &Unit<'_>, tile: &Tile<'_>, state: &mut State<'_>, r: usize, keys: Range<u32>) {
    let head = u.heads.start + r % u.heads.len();
    let mut score = s.mul(s.load(&state.weights[r]), s.splat(u.p.scale));
    if u.p.softcap != 0.0 {
        let cap = s.splat(u.p.softcap);
        score = s.mul(cap, math::tanh(s, s.div(score, cap)));
    }
    let lane = s.load(&crate::simd::array(|j| j as f32));
    if u.p.max_bias > 0.0 {
        let pos = u.paging.position(u.seq, u.tokens.start + r / u.heads.len());
        let distance = s.sub(s.splat((pos - tile.start as i64) as f32), lane);
        let slope = alibi_slope(head, u.q.ne[1], u.p.max_bias);
        score = s.sub(score, s.mul(s.splat(slope), distance));
    }
    let unseen = s.splat(f32::NEG_INFINITY);
    score = s.above(s.load(&tile.there), s.splat(0.5), score, unseen);
    score = s.above(lane, s.splat(keys.start as f32 - 0.5), score, unseen);
    score = s.above(s.splat(keys.end as f32 - 0.5), lane, score, unseen);

    let [max, sum] = [state.softmax[2 * r], state.softmax[2 * r + 1]];
    let new_max = max.max(s.peak(score));
    if new_max == f32::NEG_INFINITY {
        state.weights[r] = [0.0; KEYS];
        return;
    }
    let weight = math::exp(s, s.sub(score, s.splat(new_max)));
    s.store(weight, &mut state.weights[r]);
    let mut sum = sum;
    if new_max > max {
        let shrink = math::exp_one(s, max - new_max);
        sum *= shrink;
        let shrink = s.splat(shrink);
        for v in state.sums[r * state.dim_v..][..state.dim_v].as_chunks_mut::<LANES>().0 {
            s.store(s.mul(s.load(v), shrink), v);
        }
    }
    state.softmax[2 * r] = new_max;
    state.softmax[2 * r + 1] = sum + s.sum(weight);
}

/// Adds weighted values of the keys, in order, to the sums of `R` rows.
#[inline(always)]
fn add_values<S: Simd, const R: usize>(
    s: S,
    tile: &Tile<'_>,
    state: &mut State<'_>,
    r: usize,
    keys: Range<usize>,
) {
    if keys.is_empty() {
        return;
    }
    let mut at = 0;
    while at + 4 * LANES <= state.dim_v {
        add_value_columns::<S, R, 4>(s, tile, state, r, keys.clone(), at);
        at += 4 * LANES;
    }
    while at < state.dim_v {
        add_value_columns::<S, R, 1>(s, tile, state, r, keys.clone(), at);
        at += LANES;
    }
}

/// As [`add_values`], for `D` vectors from element `at` on.
#[inline(always)]
fn add_value_columns<S: Simd, const R: usize, const D: usize>(
    s: S,
    tile: &Tile<'_>,
    state: &mut State<'_>,
    r: usize,
    keys: Range<usize>,
    at: usize,
) {
    let dim_v = state.dim_v;
    let mut sums: [[S::F; D]; R] = crate::simd::array(|i| {
        let sums = state.sums[(r + i) * dim_v + at..][..D * LANES].as_chunks::<LANES>().0;
        crate::simd::array(|d| s.load(&sums[d]))
    });
    for j in keys {
        let v = tile.v[j * dim_v + at..][..D * LANES].as_chunks::<LANES>().0;
        let v: [S::F; D] = crate::simd::array(|d| s.load(&v[d]));
        for i in 0..R {
            let weight = s.splat(state.weights[r + i][j]);
            for d in 0..D {
                sums[i][d] = s.fma(weight, v[d], sums[i][d]);
            }
        }
    }
    for i in 0..R {
        let to = state.sums[(r + i) * dim_v + at..][..D * LANES].as_chunks_mut::<LANES>().0;
        for d in 0..D {
            s.store(sums[i][d], &mut to[d]);
        }
    }
}

/// Divides by the sums of weights, in which the sink has its share.
#[inline(always)]
fn finish<S: Simd>(s: S, u: &Unit<'_>, head_dim_v: usize, state: &mut State<'_>) {
    for r in 0..state.weights.len() {
        let (token, head) = (u.tokens.start + r / u.heads.len(), u.heads.start + r % u.heads.len());
        let [max, sum] = [state.softmax[2 * r], state.softmax[2 * r + 1]];
        let factor = match u.sinks.map(|sinks| sinks[head]) {
            _ if sum == 0.0 => 0.0,
            None => sum.recip(),
            Some(sink) => {
                let new_max = max.max(sink);
                let shrink = math::exp_one(s, max - new_max);
                shrink / (sum * shrink + math::exp_one(s, sink - new_max))
            }
        };
        // SAFETY: the unit's heads of the unit's tokens are this thread's alone.
        let y = unsafe { u.y.part_mut([token, 0, 0], head * head_dim_v..(head + 1) * head_dim_v) };
        y.iter_mut().zip(&state.sums[r * state.dim_v..]).for_each(|(y, sum)| *y = sum * factor);
    }
}

/// Slope of ALiBi (arXiv 2108.12409): a geometric series over the largest power of two of heads, 2^(-max_bias (h+1)/n);
/// further heads take the odd terms of the series with half the step.
pub fn alibi_slope(head: usize, n_heads: usize, max_bias: f32) -> f32 {
    let n = 1usize << n_heads.ilog2();
    match head < n {
        true => (-max_bias / n as f32 * (head + 1) as f32).exp2(),
        false => (-max_bias / 2.0 / n as f32 * (2 * (head - n) + 1) as f32).exp2(),
    }
}
