//! The running softmax of a row: dots become weights, part by part.
//!
//! A part is a stretch of positions that is cut at fixed places. Within it sums shrink when a larger score appears; the
//! parts are joined in order. So nothing depends on who does which part.

use super::numbers::KEYS;
use crate::simd::{LANES, Simd, array, math};
use llmrt_plugin::abi::op::AttentionParams;

/// Weights of a row.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Running {
    /// Sums of the part's weights, by position modulo 16.
    pub lanes: [f32; LANES],
    /// Largest score of the part.
    pub max: f32,
    /// Largest score of the parts before, and the sum of their weights.
    pub before: [f32; 2],
}

impl Running {
    /// Nothing seen yet.
    pub const EMPTY: Running =
        Running { lanes: [0.0; LANES], max: f32::NEG_INFINITY, before: [f32::NEG_INFINITY, 0.0] };
}

/// What makes weights of a row's dots.
pub struct Scores<'a> {
    pub p: &'a AttentionParams,
    /// ALiBi's slope; 0 without.
    pub slope: f32,
    /// How far the query is from the first key.
    pub distance: i64,
    /// First key of the tile that is seen and the one past the last: some are.
    pub seen: [u32; 2],
    /// 1 where the key has a slot; None if all have.
    pub there: Option<&'a [f32; KEYS]>,
}

/// Turns dots into weights and adds them up; `sums`, a multiple of 16, are of values weighted so far.
#[inline(always)]
pub fn weigh<S: Simd>(s: S, of: &Scores<'_>, row: &mut [f32; KEYS], running: &mut Running, sums: &mut [f32]) {
    let mut scores = [s.zero(); KEYS / LANES];
    for (g, score) in scores.iter_mut().enumerate() {
        *score = of.score(s, s.load(&row.as_chunks().0[g]), g * LANES);
    }
    let [a, b, c, d] = scores;
    let mut max = running.max.max(s.peak(s.max(s.max(a, b), s.max(c, d))));
    if max == f32::NEG_INFINITY {
        scores.iter().zip(row.as_chunks_mut().0).for_each(|(score, to)| s.store(*score, to));
        if row.iter().all(|&score| score == f32::NEG_INFINITY) {
            return row.fill(0.0);
        }
        // Some are NaN, which no maximum tells: weights and sums become NaN as well.
        max = 0.0;
    }
    let mut weights = scores;
    for (weight, to) in weights.iter_mut().zip(row.as_chunks_mut::<LANES>().0) {
        *weight = math::exp(s, s.sub(*weight, s.splat(max)));
        s.store(*weight, to);
    }
    let [a, b, c, d] = weights;
    let mut lanes = s.load(&running.lanes);
    if max > running.max {
        // Of nothing, nothing shrinks.
        if running.max > f32::NEG_INFINITY {
            let shrink = s.splat(math::exp_one(s, running.max - max));
            lanes = s.mul(lanes, shrink);
            scale(s, sums, shrink);
        }
        running.max = max;
    }
    s.store(s.add(lanes, s.add(s.add(a, b), s.add(c, d))), &mut running.lanes);
}

impl Scores<'_> {
    /// Scores of 16 keys from their dots, -inf for those that are not seen.
    #[inline(always)]
    fn score<S: Simd>(&self, s: S, dots: S::F, first: usize) -> S::F {
        let mut score = s.mul(dots, s.splat(self.p.scale));
        if self.p.softcap != 0.0 {
            let cap = s.splat(self.p.softcap);
            score = s.mul(cap, math::tanh(s, s.div(score, cap)));
        }
        let [start, end] = self.seen;
        if self.slope == 0.0 && start == 0 && end == KEYS as u32 && self.there.is_none() {
            return score;
        }
        let key = s.load(&array(|j| (first + j) as f32));
        if self.slope != 0.0 {
            let distance = s.sub(s.splat(self.distance as f32), key);
            score = s.sub(score, s.mul(s.splat(self.slope), distance));
        }
        let unseen = s.splat(f32::NEG_INFINITY);
        if let Some(there) = self.there {
            score = s.above(s.load(&array(|j| there[first + j])), s.splat(0.5), score, unseen);
        }
        score = s.above(key, s.splat(start as f32 - 0.5), score, unseen);
        s.above(s.splat(end as f32 - 0.5), key, score, unseen)
    }
}

/// Joins the part to those before it, whose weighted values are `total`, and begins another.
#[inline(always)]
pub fn join<S: Simd>(s: S, running: &mut Running, sums: &mut [f32], total: &mut [f32]) {
    let [max_before, sum_before] = running.before;
    let sum = s.sum(s.load(&running.lanes));
    if max_before == f32::NEG_INFINITY {
        running.before = [running.max, sum];
        total.copy_from_slice(sums);
    } else if running.max > f32::NEG_INFINITY {
        let max = max_before.max(running.max);
        let (of_before, of_part) = (math::exp_one(s, max_before - max), math::exp_one(s, running.max - max));
        running.before = [max, sum_before * of_before + sum * of_part];
        let (of_before, of_part) = (s.splat(of_before), s.splat(of_part));
        for (total, sums) in total.as_chunks_mut().0.iter_mut().zip(sums.as_chunks().0) {
            let part = s.mul(s.load(sums), of_part);
            s.store(s.add(s.mul(s.load(total), of_before), part), total);
        }
    }
    (running.lanes, running.max) = ([0.0; LANES], f32::NEG_INFINITY);
    sums.fill(0.0);
}

/// What the joined sums are multiplied by: 1 over the sum of weights, in which the sink has its share.
#[inline(always)]
pub fn share<S: Simd>(s: S, [max, sum]: [f32; 2], sink: Option<f32>) -> f32 {
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
fn scale<S: Simd>(s: S, sums: &mut [f32], factor: S::F) {
    for sum in sums.as_chunks_mut().0 {
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
