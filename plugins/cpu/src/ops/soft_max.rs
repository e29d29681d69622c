//! y = softmax(x · scale + slope · mask) over rows. A row of which everything is -inf gives zeros.

use super::attention::online_softmax::alibi_slope;
use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, rows};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::SoftMaxParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(SoftMaxParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(node, 0)?;
    supports_mask(node, 1, x.ne())?;
    ensure(p.max_bias <= 0.0 || p.max_bias.is_nan() || node.src(1).is_some(), Reason::Param)?;
    if let Some(sinks) = check::optional_floats(node, 2)? {
        check::vector(&sinks, x.ne()[2])?;
    }
    check::result(node, DType::F32, x.ne())
}

/// Checks source `i`, if it is there: a mask of these scores, F16 or F32, of as many rows or more.
pub fn supports_mask(node: &NodeView<'_>, i: usize, scores: [usize; 4]) -> Answer {
    if node.src(i).is_none() {
        return Ok(());
    }
    let mask = check::decodable(node, i)?;
    ensure(matches!(mask.dtype(), Some(DType::F16 | DType::F32)), Reason::Type)?;
    let ne = mask.ne();
    ensure(ne[0] == scores[0] && ne[1] >= scores[1], Reason::Shape)?;
    ensure(scores[2].is_multiple_of(ne[2]) && scores[3].is_multiple_of(ne[3]), Reason::Shape)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(SoftMaxParams::from_bytes);
    let sinks = a.src[2].as_ref().map(|t| t.row([0; 3]));
    for (at, y) in out.rows() {
        let head = at[1];
        let y = y.floats();
        let x = a.arg(0).row(at);
        match &a.src[1] {
            Some(mask) => {
                let at = [at[0], at[1] % mask.ne[2], at[2] % mask.ne[3]];
                let room = w.scratch.rows.take(x.len());
                let mask = rows::read(w.isa, mask, at, 0..x.len(), room);
                let slope = mask_slope(head, a.dst.ne[2], p.max_bias);
                y.iter_mut().zip(x.iter().zip(mask)).for_each(|(y, (x, m))| *y = x * p.scale + slope * m);
            }
            None => y.iter_mut().zip(x).for_each(|(y, x)| *y = x * p.scale),
        }
        soft_max_row(w.isa, y, sinks.map(|sinks| sinks[head]));
    }
}

/// Factor on a head's mask: 1, with ALiBi [`alibi_slope`].
pub fn mask_slope(head: usize, n_heads: usize, max_bias: f32) -> f32 {
    if max_bias > 0.0 { alibi_slope(head, n_heads, max_bias) } else { 1.0 }
}

dispatch! {
    /// exp(v - max) / Σ exp(v - max) in place; the sink is one more score that takes its share and is dropped.
    pub fn soft_max_row(row: &mut [f32], sink: Option<f32>) = soft_max_row_with;
}

#[inline(always)]
fn soft_max_row_with<S: Simd>(s: S, row: &mut [f32], sink: Option<f32>) {
    let max = row.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return row.fill(0.0);
    }
    let (vectors, rest) = row.as_chunks_mut::<LANES>();
    let mut sum = s.zero();
    for v in vectors {
        let e = math::exp(s, s.sub(s.load(v), s.splat(max)));
        sum = s.add(sum, e);
        s.store(e, v);
    }
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        let e = math::exp(s, s.sub(s.load(&padded), s.splat(max)));
        sum = s.add(sum, e);
        s.store_part(e, rest);
    }
    let mut total = s.sum(sum);
    if let Some(sink) = sink {
        total += math::exp_one(s, sink - max);
    }
    let inverse = total.recip();
    row.iter_mut().for_each(|v| *v *= inverse);
}
