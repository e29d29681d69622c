//! y = softmax(softcap(q · k · scale) + slope · mask) · v, over contiguous keys.
//!
//! The work is cut into tiles of queries of a head. A tile walks the keys in tiles of 16, reads each key and value once,
//! and keeps an online softmax per query. What a query computes does not depend on the tile it is in. Keys that the mask
//! hides change nothing, whatever is in them.

use super::check::{self, Answer, ensure};
use super::out_prod::add_scaled_with;
use super::output::Tile;
use super::soft_max::{mask_slope, supports_mask};
use super::{Args, Output, Worker, rows};
use crate::scratch::Scratch;
use crate::simd::{Isa, LANES, Simd, dispatch, math};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::AttentionContiguousParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

/// Queries of a tile.
const QUERIES: usize = 16;
/// Keys of a tile of keys.
const KEYS: usize = LANES;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(AttentionContiguousParams::from_bytes(node.params_bytes()))?;
    let [head_dim, n_q, n_heads, n] = check::floats(node, 0)?.ne();
    let (k, v) = (check::decodable(node, 1)?.ne(), check::decodable(node, 2)?.ne());
    ensure(k[0] == head_dim && v[1] == k[1], Reason::Shape)?;
    ensure([k, v].iter().all(|of| n_heads.is_multiple_of(of[2]) && n.is_multiple_of(of[3])), Reason::Shape)?;
    supports_mask(node, 3, [k[1], n_q, n_heads, n])?;
    ensure(p.max_bias <= 0.0 || p.max_bias.is_nan() || node.src(3).is_some(), Reason::Param)?;
    if let Some(sinks) = check::optional_floats(node, 4)? {
        check::vector(&sinks, n_heads)?;
    }
    check::result(node, DType::F32, [v[0], n_heads, n_q, n])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(AttentionContiguousParams::from_bytes);
    // Tiles of the same head, which read the same keys, follow each other.
    for mut y in out.take_tiles([a.dst.ne[0], 1, QUERIES, 1], 2) {
        let [_, head, queries, batch] = y.dims();
        let (head, batch) = (head.start, batch.start);
        attend(w.isa, &QueryTile { a, p: &p, isa: w.isa, queries, head, batch }, &mut y, w.scratch);
    }
}

/// Queries of one head.
struct QueryTile<'a> {
    a: &'a Args,
    p: &'a AttentionContiguousParams,
    isa: Isa,
    queries: Range<usize>,
    head: usize,
    batch: usize,
}

impl QueryTile<'_> {
    /// Dims 2 and 3 of k or v that the head reads.
    fn head_of(&self, t: &Tensor) -> [usize; 2] {
        let q = self.a.arg(0);
        [self.head / (q.ne[2] / t.ne[2]), self.batch / (q.ne[3] / t.ne[3])]
    }

    /// What is added to a query's scores of keys `first..`, -inf past the last key and where the mask hides them.
    fn bias(&self, query: usize, slope: f32, first: usize) -> [f32; KEYS] {
        let mut bias = [f32::NEG_INFINITY; KEYS];
        let keys = first..(first + KEYS).min(self.a.arg(1).ne[1]);
        let bias_of_keys = &mut bias[..keys.len()];
        let Some(mask) = &self.a.src[3] else {
            bias_of_keys.fill(0.0);
            return bias;
        };
        let at = [query, self.head % mask.ne[2], self.batch % mask.ne[3]];
        let mut room = [0.0; KEYS];
        let mask = rows::read(self.isa, mask, at, keys, &mut room);
        bias_of_keys.iter_mut().zip(mask).for_each(|(b, m)| *b = slope * m);
        bias
    }
}

dispatch! {
    /// Makes the tile's rows of the result.
    fn attend(tile: &QueryTile<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) = attend_with;
}

#[inline(always)]
fn attend_with<S: Simd>(s: S, tile: &QueryTile<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    let (q, k, v) = (tile.a.arg(0), tile.a.arg(1), tile.a.arg(2));
    let ([k2, k3], [v2, v3]) = (tile.head_of(k), tile.head_of(v));
    let (dim, dim_v) = (k.ne[0], v.ne[0]);
    let slope = mask_slope(tile.head, q.ne[2], tile.p.max_bias);
    let Scratch { floats: [k_row_f32, v_row_f32, sums, ..], .. } = scratch;
    let (k_row_f32, v_row_f32) = (k_row_f32.take(dim), v_row_f32.take(dim_v));
    let sums = sums.zeroed(tile.queries.len() * dim_v);
    let mut softmax = [(f32::NEG_INFINITY, 0.0); QUERIES];
    let mut weights = [[0.0; KEYS]; QUERIES];
    for first in (0..k.ne[1]).step_by(KEYS) {
        let keys = first..(first + KEYS).min(k.ne[1]);
        for key in keys.clone() {
            let k_row = rows::read(tile.isa, k, [key, k2, k3], 0..dim, k_row_f32);
            for (i, query) in tile.queries.clone().enumerate() {
                weights[i][key - first] = dot(s, q.row([query, tile.head, tile.batch]), k_row);
            }
        }
        for (i, query) in tile.queries.clone().enumerate() {
            let bias = tile.bias(query, slope, first);
            let sums = &mut sums[i * dim_v..][..dim_v];
            update_softmax(s, tile.p, &bias, &mut weights[i], &mut softmax[i], sums);
        }
        for key in keys {
            let v_row = rows::read(tile.isa, v, [key, v2, v3], 0..dim_v, v_row_f32);
            for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(dim_v)) {
                if weights[key - first] != 0.0 {
                    add_scaled_with(s, sums, v_row, weights[key - first]);
                }
            }
        }
    }
    let sink = tile.a.src[4].as_ref().map(|sinks| sinks.row([0; 3])[tile.head]);
    for (i, query) in tile.queries.clone().enumerate() {
        let factor = normaliser(s, softmax[i], sink);
        let y = y.row([tile.head, query, tile.batch]);
        y.iter_mut().zip(&sums[i * dim_v..]).for_each(|(y, sum)| *y = sum * factor);
    }
}

/// q · k: 16 partial sums, then their sum.
#[inline(always)]
fn dot<S: Simd>(s: S, q: &[f32], k: &[f32]) -> f32 {
    let ((q, q_rest), (k, k_rest)) = (q.as_chunks::<LANES>(), k.as_chunks::<LANES>());
    let mut sum = s.zero();
    for (q, k) in q.iter().zip(k) {
        sum = s.fma(s.load(q), s.load(k), sum);
    }
    s.sum(s.fma(s.load_part(q_rest), s.load_part(k_rest), sum))
}

/// Turns dots into weights, with the online softmax (largest score, sum of weights): sums so far shrink when a larger
/// score appears.
#[inline(always)]
fn update_softmax<S: Simd>(
    s: S,
    p: &AttentionContiguousParams,
    bias: &[f32; KEYS],
    weights: &mut [f32; KEYS],
    (max, total): &mut (f32, f32),
    sums: &mut [f32],
) {
    let mut score = s.mul(s.load(weights), s.splat(p.scale));
    if p.softcap != 0.0 {
        let cap = s.splat(p.softcap);
        score = s.mul(cap, math::tanh(s, s.div(score, cap)));
    }
    let (bias, hidden) = (s.load(bias), s.splat(f32::NEG_INFINITY));
    score = s.above(bias, hidden, s.add(score, bias), hidden);
    let new_max = max.max(s.peak(score));
    if new_max == f32::NEG_INFINITY {
        *weights = [0.0; KEYS];
        return;
    }
    let weight = math::exp(s, s.sub(score, s.splat(new_max)));
    s.store(weight, weights);
    if new_max > *max {
        let shrink = math::exp_one(s, *max - new_max);
        *total *= shrink;
        sums.iter_mut().for_each(|v| *v *= shrink);
        *max = new_max;
    }
    *total += s.sum(weight);
}

/// What weighted sums are multiplied by: 1 over the sum of weights, in which the sink has its share.
#[inline(always)]
fn normaliser<S: Simd>(s: S, (max, total): (f32, f32), sink: Option<f32>) -> f32 {
    match sink {
        _ if total == 0.0 => 0.0,
        None => total.recip(),
        Some(sink) => {
            let new_max = max.max(sink);
            let shrink = math::exp_one(s, max - new_max);
            shrink / (total * shrink + math::exp_one(s, sink - new_max))
        }
    }
}
