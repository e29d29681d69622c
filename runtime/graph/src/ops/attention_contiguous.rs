//! y = softmax(softcap(q · k · scale) + slope · mask) · v, over contiguous keys.
//!
//! Semantics are those of ggml's `flash_attn_ext`. Head h of q reads head h / (n_heads / n_kv_heads) of k, and of v by
//! its own number of heads; dim 3 broadcasts alike. A head's slope is 1, or that of ALiBi; its sink is one more score
//! that takes its share of the softmax. Keys that the mask hides change nothing, whatever is in them; where it hides all
//! the result is zeros.
//!
//! Result: F32 [v_dim, n_heads, n_q, n] of q F32 [head_dim, n_q, n_heads, n]; k and v of any dtype that can be decoded.

use super::attention::{capped, soft_cap};
use super::mul_mat::dot;
use super::soft_max::{check_mask, mask_row, mask_slope, soft_max_row, unravel};
use super::{Inferred, Rules, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::op::{AttentionContiguousParams, SoftMaxParams};
use llmrt_abi::{DType, Op};

#[path = "attention_contiguous_cases.rs"]
mod attention_contiguous_cases;

impl Graph {
    /// Attention of `q` [head_dim, n_q, n_heads, n] over `k` [head_dim, n_kv, n_kv_heads, n] and `v` [head_dim_v, n_kv,
    /// n_kv_heads, n], of any dtype and permuted at will but for dim 0: [head_dim_v, n_heads, n_q, n]. `mask` is F16 or
    /// F32 [n_kv, n_q or more, a divisor of n_heads, a divisor of n], `sinks` [n_heads].
    pub fn attention_contiguous(
        &mut self,
        [q, k, v]: [Tensor; 3],
        mask: Option<Tensor>,
        sinks: Option<Tensor>,
        p: &AttentionContiguousParams,
    ) -> Tensor {
        let src = [Some(q), Some(k), Some(v), mask, sinks];
        let n = src.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.push(Op::AttentionContiguous, &src[..n], &p.to_bytes())
    }
}

pub(super) const RULES: Rules =
    Rules { infer, reference, decompose: Some(decompose), cases: attention_contiguous_cases::cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(AttentionContiguousParams::from_bytes(params))?;
    let q = check::floats(src, 0, "q")?;
    let k = check::decodable(src, 1, "k")?;
    let v = check::decodable(src, 2, "v")?;
    let [head_dim, n_q, n_heads, n] = q.ne;
    if k.ne[0] != head_dim || !n_heads.is_multiple_of(k.ne[2]) || !n.is_multiple_of(k.ne[3]) {
        return Err(format!("k {:?} does not broadcast to q {:?}", k.ne, q.ne));
    }
    if v.ne[1] != k.ne[1] || !n_heads.is_multiple_of(v.ne[2]) || !n.is_multiple_of(v.ne[3]) {
        return Err(format!("v {:?} beside k {:?} for q {:?}", v.ne, k.ne, q.ne));
    }
    let mask = check_mask(src, 3, [k.ne[1], n_q, n_heads, n])?;
    if p.max_bias > 0.0 && mask.is_none() {
        return Err(format!("max_bias {} without the mask that it is for", p.max_bias));
    }
    if let Some(sinks) = check::optional_floats(src, 4, "sinks")? {
        check::vector(sinks, n_heads, "sinks")?;
    }
    Ok((DType::F32, [v.ne[0], n_heads, n_q, n]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = AttentionContiguousParams::from_bytes(params).unwrap_or_default();
    let [q, k, v] = [0, 1, 2].map(|i| check::arg(src, i));
    let (mask, sinks) = (check::optional_arg(src, 3), check::optional_arg(src, 4));
    let [_, n_q, n_heads, n] = q.ne;
    let (n_kv, head_dim_v) = (k.ne[1] as usize, v.ne[0] as usize);
    let mut y = vec![0.0; head_dim_v * q.n_rows()];
    for i in 0..q.n_rows() {
        let [query, head, batch] = unravel(i as u64, q.ne);
        let first = |of: Shape| ((batch / (n / of[3]) * of[2] + head / (n_heads / of[2])) * of[1]) as usize;
        let (first_k, first_v) = (first(k.ne), first(v.ne));
        let score = |key| soft_cap(dot(q.row(i), k.row(first_k + key)) * p.scale, p.softcap);
        let mut scores: Vec<f32> = (0..n_kv).map(score).collect();
        if let Some(mask) = mask {
            let slope = mask_slope(head as usize, n_heads as usize, p.max_bias);
            let mask = mask.row(mask_row([query, head, batch], mask.ne));
            for (score, m) in scores.iter_mut().zip(mask) {
                *score = if slope * m == f32::NEG_INFINITY { f32::NEG_INFINITY } else { *score + slope * m };
            }
        }
        soft_max_row(&mut scores, sinks.map(|s| s.floats()[head as usize]));
        let row = ((batch * n_q + query) * n_heads + head) as usize;
        for (j, y) in y[row * head_dim_v..][..head_dim_v].iter_mut().enumerate() {
            let seen = scores.iter().enumerate().filter(|(_, w)| **w != 0.0);
            let weighted = |(key, w): (usize, &f32)| *w as f64 * v.row(first_v + key)[j] as f64;
            *y = seen.map(weighted).sum::<f64>() as f32;
        }
    }
    Value::f32([v.ne[0], n_heads, n_q, n], y)
}

/// Scores of all queries with all keys, their softmax, and its product with V turned over.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = AttentionContiguousParams::from_bytes(&node.params)?;
    let [q, k, v] = *node.src.first_chunk()?;
    let [mask, sinks] = [3, 4].map(|i| node.src.get(i).copied().flatten());

    let scores = g.mul_mat(k?, q?); // [n_kv, n_q, n_heads, n]
    let (scores, scale) = capped(g, scores, p.scale, p.softcap);
    let p = SoftMaxParams { scale, max_bias: p.max_bias };
    let weights = g.soft_max_with(scores, mask, sinks, &p);

    let v = g.cast(v?, DType::F32);
    let v = g.permute(v, [1, 0, 2, 3]);
    let v = g.cont(v); // [n_kv, head_dim_v, n_kv_heads, n]
    let y = g.mul_mat(v, weights); // [head_dim_v, n_q, n_heads, n]
    let y = g.permute(y, [0, 2, 1, 3]);
    Some(g.cont(y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    /// One query of three heads over two keys; numbers that ggml computed.
    #[test]
    fn scores_are_capped_then_masked_by_slope_then_shared_with_the_sink() {
        let build = |g: &mut Graph| {
            let q = g.input("q", DType::F32, &[2, 1, 3]);
            let k = g.input("k", DType::F32, &[2, 2]);
            let v = g.input("v", DType::F32, &[1, 2]);
            let mask = g.input("mask", DType::F16, &[2, 1]);
            let sinks = g.input("sinks", DType::F32, &[3]);
            let p = AttentionContiguousParams { scale: 0.5, softcap: 1.5, max_bias: 8.0 };
            g.attention_contiguous([q, k, v], Some(mask), Some(sinks), &p)
        };
        let inputs = [
            ("q", floats(&[0.25, 0.5, 0.75, 1.0, 1.25, 1.5])),
            ("k", floats(&[0.25, 0.5, 0.75, 1.0])),
            ("v", floats(&[0.25, 0.5])),
            ("mask", floats(&[0.0, -2.0])),
            ("sinks", floats(&[0.0, 1.0, -1.0])),
        ];
        check(build, &inputs, &[0.2674127, 0.222175, 0.3374362]);
    }
}
