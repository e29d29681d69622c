//! The online softmax of a row (arXiv 1805.02867, 2205.14135): dots become weights, tile by tile.
//!
//! Positions are split at fixed places. Within a split, sums shrink when a larger score appears; then it is merged with
//! those before, in order. So nothing depends on who does which split.

use super::kv_rows::KEYS;
use crate::simd::{LANES, Simd, array, math};
use bytemuck::{Pod, Zeroable};
use llmrt_plugin::abi::op::AttentionParams;

/// A row's maxima and sums of weights.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct OnlineSoftmax {
    /// Sums of the split's weights, by position modulo 16.
    pub lanes: [f32; LANES],
    /// Largest score of the split.
    pub max: f32,
    /// The same with the tile at hand.
    pub next_max: f32,
    /// Of the splits before.
    pub merged: Total,
}

/// Largest score of some keys, and the sum of their weights.
pub type Total = [f32; 2];

/// The total of no keys.
pub const NOTHING: Total = [f32::NEG_INFINITY, 0.0];

impl OnlineSoftmax {
    /// Nothing seen yet.
    pub const EMPTY: OnlineSoftmax = OnlineSoftmax {
        lanes: [0.0; LANES],
        max: f32::NEG_INFINITY,
        next_max: f32::NEG_INFINITY,
        merged: NOTHING,
    };
}

/// What makes scores of a row's dots: scale, softcap, ALiBi, masks.
pub struct ScoreMod<'a> {
    pub p: &'a AttentionParams,
    /// ALiBi's slope; 0 without.
    pub slope: f32,
    /// How far the query is from the first key.
    pub distance: i64,
    /// First key of the tile that is seen and the one past the last: some are.
    pub visible: [u32; 2],
    /// 1 where the key has a slot; None if all have.
    pub has_slot: Option<&'a [f32; KEYS]>,
}

/// Turns dots into scores and looks for the largest.
#[inline(always)]
pub fn score<S: Simd>(s: S, score_mod: &ScoreMod<'_>, row: &mut [f32; KEYS], softmax: &mut OnlineSoftmax) {
    let mut scores = [s.zero(); KEYS / LANES];
    for (g, (score, to)) in scores.iter_mut().zip(row.as_chunks_mut().0).enumerate() {
        *score = score_mod.score(s, s.load(to), g * LANES);
        s.store(*score, to);
    }
    let [a, b, c, d] = scores;
    softmax.next_max = softmax.max.max(s.peak(s.max(s.max(a, b), s.max(c, d))));
}

/// Turns scores into weights and adds them up; `acc`, a multiple of 16, are the values weighted so far, which shrink where
/// a larger score has appeared.
#[inline(always)]
pub fn weigh<S: Simd>(s: S, row: &mut [f32; KEYS], softmax: &mut OnlineSoftmax, acc: &mut [f32]) {
    let mut max = softmax.next_max;
    if max == f32::NEG_INFINITY {
        if row.iter().all(|&score| score == f32::NEG_INFINITY) {
            return row.fill(0.0);
        }
        // Some are NaN, which a maximum does not show: weights and sums become NaN as well.
        max = 0.0;
    }
    let mut weights = [s.zero(); KEYS / LANES];
    for (weight, row) in weights.iter_mut().zip(row.as_chunks_mut::<LANES>().0) {
        *weight = math::exp(s, s.sub(s.load(row), s.splat(max)));
        s.store(*weight, row);
    }
    let [a, b, c, d] = weights;
    let mut lanes = s.load(&softmax.lanes);
    if max > softmax.max {
        // Of nothing, nothing shrinks.
        if softmax.max > f32::NEG_INFINITY {
            let shrink = s.splat(math::exp_one(s, softmax.max - max));
            lanes = s.mul(lanes, shrink);
            scale(s, acc, shrink);
        }
        softmax.max = max;
    }
    s.store(s.add(lanes, s.add(s.add(a, b), s.add(c, d))), &mut softmax.lanes);
}

impl ScoreMod<'_> {
    /// Scores of 16 keys from their dots, -inf for those that are not seen.
    #[inline(always)]
    fn score<S: Simd>(&self, s: S, dots: S::F, first: usize) -> S::F {
        let mut score = s.mul(dots, s.splat(self.p.scale));
        if self.p.softcap != 0.0 {
            let cap = s.splat(self.p.softcap);
            score = s.mul(cap, math::tanh(s, s.div(score, cap)));
        }
        let [start, end] = self.visible;
        if self.slope == 0.0 && start == 0 && end == KEYS as u32 && self.has_slot.is_none() {
            return score;
        }
        let key = s.load(&array(|j| (first + j) as f32));
        if self.slope != 0.0 {
            let distance = s.splat(self.distance as f32);
            let distance = s.max(s.sub(distance, key), s.sub(key, distance));
            score = s.sub(score, s.mul(s.splat(self.slope), distance));
        }
        let masked = s.splat(f32::NEG_INFINITY);
        if let Some(has_slot) = self.has_slot {
            score = s.above(s.load(&array(|j| has_slot[first + j])), s.splat(0.5), score, masked);
        }
        score = s.above(key, s.splat(start as f32 - 0.5), score, masked);
        s.above(s.splat(end as f32 - 0.5), key, score, masked)
    }
}

/// Ends a split: merges it with those before it, whose weighted values are `merged`, and begins another.
#[inline(always)]
pub fn end_split<S: Simd>(s: S, softmax: &mut OnlineSoftmax, acc: &mut [f32], merged: &mut [f32]) {
    let total = [softmax.max, s.sum(s.load(&softmax.lanes))];
    merge(s, total, acc, &mut softmax.merged, merged);
    (softmax.lanes, softmax.max) = ([0.0; LANES], f32::NEG_INFINITY);
    acc.fill(0.0);
}

/// Merges a split, its total and its weighted values, with the splits before it.
#[inline(always)]
pub fn merge<S: Simd>(s: S, [max_split, sum]: Total, acc: &[f32], before: &mut Total, merged: &mut [f32]) {
    let [max_before, sum_before] = *before;
    if max_before == f32::NEG_INFINITY {
        *before = [max_split, sum];
        merged.copy_from_slice(acc);
    } else if max_split > f32::NEG_INFINITY {
        let max = max_before.max(max_split);
        let (of_before, of_split) = (math::exp_one(s, max_before - max), math::exp_one(s, max_split - max));
        *before = [max, sum_before * of_before + sum * of_split];
        let (of_before, of_split) = (s.splat(of_before), s.splat(of_split));
        for (merged, acc) in merged.as_chunks_mut().0.iter_mut().zip(acc.as_chunks().0) {
            let split = s.mul(s.load(acc), of_split);
            s.store(s.add(s.mul(s.load(merged), of_before), split), merged);
        }
    }
}

/// The result of a query: its weighted values, divided by the sum of weights.
#[inline(always)]
pub fn normalise<S: Simd>(s: S, total: Total, sink: Option<f32>, merged: &[f32], y: &mut [f32]) {
    let factor = normaliser(s, total, sink);
    y.iter_mut().zip(merged).for_each(|(y, sum)| *y = sum * factor);
}

/// What the merged sums are multiplied by: 1 over the sum of weights, in which the sink has its share.
#[inline(always)]
fn normaliser<S: Simd>(s: S, [max, sum]: Total, sink: Option<f32>) -> f32 {
    match sink {
        _ if sum == 0.0 => 0.0,
        None => sum.recip(),
        Some(sink) => {
            let new_max = max.max(sink);
            let shrink = math::exp_one(s, max - new_max);
            shrink / (sum * shrink + math::exp_one(s, sink - new_max))
        }
    }
}

#[inline(always)]
fn scale<S: Simd>(s: S, acc: &mut [f32], factor: S::F) {
    for sum in acc.as_chunks_mut().0 {
        s.store(s.mul(s.load(sum), factor), sum);
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
