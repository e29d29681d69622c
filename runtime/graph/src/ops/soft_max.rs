//! y = softmax(x · scale + slope · mask) over rows. A row of which everything is -inf gives zeros.
//!
//! Semantics are those of ggml's `soft_max_ext`. Head h is dim 2 of x. Its slope is 1, or with ALiBi a power of two; its
//! sink is one more score of each row, which takes its share and is dropped.
//!
//! Result: F32 in the shape of x, which is F32.

use super::{Inferred, Rules, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::SoftMaxParams};

#[path = "soft_max_cases.rs"]
mod soft_max_cases;

impl Graph {
    /// Softmax of the rows of `x` · `scale`, plus `mask` [n, rows or more, 1 or a divisor, …] if given.
    pub fn soft_max(&mut self, x: Tensor, mask: Option<Tensor>, scale: f32) -> Tensor {
        self.soft_max_with(x, mask, None, &SoftMaxParams { scale, max_bias: 0.0 })
    }

    /// As [`Graph::soft_max`], with ALiBi's slopes on the mask if `p.max_bias` is above 0, and one more score per head,
    /// `sinks` [heads, dim 2 of `x`], that takes its share.
    pub fn soft_max_with(
        &mut self,
        x: Tensor,
        mask: Option<Tensor>,
        sinks: Option<Tensor>,
        p: &SoftMaxParams,
    ) -> Tensor {
        let src = [Some(x), mask, sinks];
        let n = src.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.push(Op::SoftMax, &src[..n], &p.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: soft_max_cases::cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(SoftMaxParams::from_bytes(params))?;
    let x = check::floats(src, 0, "x")?;
    let mask = check_mask(src, 1, x.ne)?;
    if p.max_bias > 0.0 && mask.is_none() {
        return Err(format!("max_bias {} without the mask that it is for", p.max_bias));
    }
    if let Some(sinks) = check::optional_floats(src, 2, "sinks")? {
        check::vector(sinks, x.ne[2], "sinks")?;
    }
    Ok((DType::F32, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = SoftMaxParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let (mask, sinks) = (check::optional_arg(src, 1), check::optional_arg(src, 2));
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let at = unravel(i as u64, x.ne);
        let head = at[1] as usize;
        let mut row: Vec<f32> = x.row(i).iter().map(|v| v * p.scale).collect();
        if let Some(mask) = mask {
            let slope = mask_slope(head, x.ne[2] as usize, p.max_bias);
            row.iter_mut().zip(mask.row(mask_row(at, mask.ne))).for_each(|(v, m)| *v += slope * m);
        }
        soft_max_row(&mut row, sinks.map(|s| s.floats()[head]));
        y.extend(row);
    }
    Value::f32(x.ne, y)
}

/// Source `i`, a mask of scores [n_keys, n_queries, n_heads, n] if it is given: F16 or F32 [n_keys, n_queries or more,
/// a divisor of n_heads, a divisor of n].
pub(super) fn check_mask<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    scores: Shape,
) -> Result<Option<&'a TensorDef>, String> {
    let Some(mask) = check::optional(src, i) else { return Ok(None) };
    if !matches!(mask.dtype, DType::F16 | DType::F32) {
        return Err(format!("mask is {}, expected F16 or F32", mask.dtype));
    }
    if !mask.has_dense_rows() {
        return Err("mask has gaps within its rows; make it contiguous with `cont`".to_string());
    }
    let enough_rows = mask.ne[0] == scores[0] && mask.ne[1] >= scores[1];
    if !enough_rows || !scores[2].is_multiple_of(mask.ne[2]) || !scores[3].is_multiple_of(mask.ne[3]) {
        return Err(format!("mask {:?} does not broadcast to {scores:?}", mask.ne));
    }
    Ok(Some(mask))
}

/// Dims 1 to 3 of row `i`.
pub(super) fn unravel(i: u64, ne: Shape) -> [u64; 3] {
    [i % ne[1], i / ne[1] % ne[2], i / ne[1] / ne[2]]
}

/// The row of a mask that belongs to the row of scores at dims 1 to 3: dims 2 and 3 repeat.
pub(super) fn mask_row([query, head, batch]: [u64; 3], mask: Shape) -> usize {
    (((batch % mask[3]) * mask[2] + head % mask[2]) * mask[1] + query) as usize
}

/// Factor on a head's mask: 1, with ALiBi [`alibi_slope`].
pub(super) fn mask_slope(head: usize, n_heads: usize, max_bias: f32) -> f32 {
    if max_bias > 0.0 { alibi_slope(head, n_heads, max_bias) } else { 1.0 }
}

/// Slope of ALiBi (arXiv 2108.12409): a geometric series over the largest power of two of heads, 2^(-max_bias (h+1)/n);
/// further heads take the odd terms of the series with half the step.
pub(super) fn alibi_slope(head: usize, n_heads: usize, max_bias: f32) -> f32 {
    let n = 1usize << n_heads.ilog2();
    match head < n {
        true => (-max_bias / n as f32 * (head + 1) as f32).exp2(),
        false => (-max_bias / 2.0 / n as f32 * (2 * (head - n) + 1) as f32).exp2(),
    }
}

/// exp(v - max) / Σ exp(v - max) in place; `sink` is one more score that takes its share and is dropped.
pub(super) fn soft_max_row(row: &mut [f32], sink: Option<f32>) {
    let max = row.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return row.fill(0.0);
    }
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f64 = row.iter().map(|&v| v as f64).sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp() as f64);
    row.iter_mut().for_each(|v| *v = (*v as f64 / sum) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    /// Three heads, so that the last has its slope from the odd terms; numbers that ggml computed.
    #[test]
    fn slopes_weigh_the_mask_and_sinks_take_their_share() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[3, 1, 3]);
            let mask = g.input("mask", DType::F32, &[3, 2]);
            let sinks = g.input("sinks", DType::F32, &[3]);
            g.soft_max_with(x, Some(mask), Some(sinks), &SoftMaxParams { scale: 0.5, max_bias: 8.0 })
        };
        let x: Vec<f32> = (1..=9).map(|i| i as f32 / 4.0).collect();
        let mask = [0.25, -1.0, 0.75, 1.0, 1.25, 1.5];
        let inputs = [("x", floats(&x)), ("mask", floats(&mask)), ("sinks", floats(&[0.0, 1.0, -1.0]))];
        let expected = [
            0.2357606, 0.247075, 0.3123321, 0.1975786, 0.2227954, 0.2541919, 0.2917081, 0.2418345, 0.4244328,
        ];
        check(build, &inputs, &expected);
    }
}
