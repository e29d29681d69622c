//! Causal attention over a paged KV cache: by the vendor's operators ([`super::attention_fused`]), or composed, with the
//! blocks of all sequences beside each other, a mask, products and a softmax, where those lack something.

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging};
use super::soft_max::{self, LOWEST, NOTHING, Rows};
use super::steps::has;
use super::{attention_fused, source};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::AttentionParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

/// Scores computed at a time: 128 MiB of F32.
const MAX_SCORES: i64 = 1 << 25;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    let p = check::params(AttentionParams::from_bytes(node.params_bytes()))?;
    ensure(p.bidirectional == 0 && p.chunk == 0, Reason::Param)?;
    has!(cann, nn.aclnnMatmul, nn.aclnnSoftmax, math.aclnnClampMin, math.aclnnTanh)?;
    has!(cann, math.aclnnInplaceFillScalar, math.aclnnPowScalarTensor, math.aclnnSub)?;
    let q = check::floats(chip, node, 0)?.ne();
    let (k, v) = (cache(chip, node, 1)?, cache(chip, node, 2)?);
    let (n_kv_heads, block_size) = (p.n_kv_heads as usize, p.block_size as usize);
    ensure(n_kv_heads > 0 && q[1] > 0 && q[1] % n_kv_heads == 0 && q[3] == 1, Reason::Shape)?;
    ensure(q[0] * n_kv_heads == k[0] && v[0] % n_kv_heads == 0 && v[1] == k[1], Reason::Shape)?;
    ensure(block_size > 0 && k[1] % block_size == 0, Reason::Shape)?;
    paging::supports(cann, node, 3, k[1], block_size)?;
    if node.src(6).is_some() {
        let sinks = check::floats(chip, node, 6)?;
        ensure(sinks.ne() == [q[1], 1, 1, 1], Reason::Shape)?;
    }
    check::result(node, Some(DType::F32), [v[0] / n_kv_heads * q[1], q[2], 1, 1])
}

/// Dims of a cache: plain floats without gaps, because its blocks are rows.
fn cache(chip: &Chip, node: &NodeView<'_>, i: usize) -> std::result::Result<[usize; 4], Reason> {
    let t = check::floats(chip, node, i)?;
    ensure(t.is_contiguous(), Reason::Stride)?;
    ensure(t.ne()[2..] == [1, 1] && t.ne()[0] > 0 && t.ne()[1] > 0, Reason::Shape)?;
    Ok(t.ne())
}

/// An attention's operands.
pub struct Attention {
    /// Attributes.
    pub p: AttentionParams,
    /// [head_dim, n_heads, n_tokens].
    pub q: Operand,
    /// [head_dim · n_kv_heads, n_slots].
    pub k: Operand,
    /// [head_dim_v · n_kv_heads, n_slots].
    pub v: Operand,
    /// [head_dim_v · n_heads, n_tokens].
    pub y: Operand,
    /// Which keys are whose.
    pub paging: Paging,
    sinks: Option<Operand>,
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = AttentionParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (q, k, v) = (source(node, 0)?.flat(3), source(node, 1)?.flat(2), source(node, 2)?.flat(2));
    let block_size = i64::from(p.block_size);
    let paging = Paging::of(node, 3, q.ne[2], block_size, k.ne[1] / block_size, p.window)?;
    let sinks = node.src(6).map(|s| Operand::of(&s)).transpose()?.map(|s| s.flat(1));
    let a = Attention { p, q, k, v, y: Operand::of(&node.dst())?.flat(2), paging, sinks };
    if a.sinks.is_none()
        && let Some(kernel) = attention_fused::kernel(call, &a)
        && call.attempt(|call| attention_fused::compute(call, &a, kernel))?
    {
        return Ok(());
    }
    composed(call, &a)
}

impl Attention {
    /// A cache by blocks: [row, block_size, n_blocks].
    pub fn in_blocks(&self, cache: &Operand) -> Operand {
        cache.reshape(&[cache.ne[0], self.paging.block_size, self.paging.n_blocks])
    }

    /// The blocks of all sequences, one after the other: [row, capacity · n_seqs].
    pub fn gathered(&self, call: &mut Call<'_>, cache: &Operand, blocks: &Operand) -> Result<Operand> {
        let (row, paging) = (cache.ne[0], &self.paging);
        let all = call.temporary(cache.dtype, &[row * paging.block_size, blocks.n_elements()])?;
        let table = cache.reshape(&[row * paging.block_size, paging.n_blocks]);
        call.gather(&table, 1, &blocks.reshape(&[blocks.n_elements()]), &all)?;
        Ok(all.reshape(&[row, paging.block_size * blocks.n_elements()]))
    }
}

/// Scores, a mask, their shares, and the values' mean by them; a piece of the tokens at a time.
fn composed(call: &mut Call<'_>, a: &Attention) -> Result<()> {
    let (n_heads, n_kv_heads) = (a.q.ne[1], i64::from(a.p.n_kv_heads));
    let blocks = a.paging.blocks(call)?;
    let sees = a.paging.sees_all(call)?;
    let alibi = match a.p.max_bias > 0.0 {
        true => Some((a.paging.distances(call)?, soft_max::slopes(call, n_heads, a.p.max_bias)?)),
        false => None,
    };
    let heads = |t: Operand| {
        let (d, n) = (t.ne[0] / n_kv_heads, t.ne[1]);
        t.reshape(&[d, n_kv_heads, n])
    };
    let (k, v) = (a.gathered(call, &a.k, &blocks)?, a.gathered(call, &a.v, &blocks)?);
    let k = heads(k).permute(&[0, 2, 1]); // [head_dim, n_keys, n_kv_heads]
    let v = heads(v).permute(&[2, 0, 1]); // [n_keys, head_dim_v, n_kv_heads]
    let n_keys = k.ne[1];
    let at_a_time = (MAX_SCORES / (n_keys * n_heads)).max(1);
    let r = n_heads / n_kv_heads;
    for start in (0..a.q.ne[2]).step_by(at_a_time as usize) {
        let n = at_a_time.min(a.q.ne[2] - start);
        call.scoped(|call| {
            // Heads of a KV head side by side: [head_dim, r, n, n_kv_heads].
            let q = a.q.slice(2, start, n).split(1, r).permute(&[0, 1, 3, 2]);
            let q = call.dense(&q, ACL_FLOAT)?;
            let scores = call.temporary(ACL_FLOAT, &[n_keys, r * n, n_kv_heads])?;
            call.product(&k, &q.reshape(&[q.ne[0], r * n, n_kv_heads]), &scores)?;
            let scores = scores.reshape(&[n_keys, r, n, n_kv_heads]);

            let rows = Rows::new(call, &scores.ne)?;
            capped(call, &a.p, &scores, &rows.scores)?;
            if let Some((distances, slopes)) = &alibi {
                let slopes = slopes.split(0, r).with_dim(1).with_dim(0); // [1, r, 1, n_kv_heads]
                add_alibi(call, &rows.scores, &distances.slice(1, start, n), &slopes, a.paging.n_seqs())?;
            }
            let sees = sees.slice(2, start, n);
            let mask = call.temporary(ACL_FLOAT, &sees.ne)?;
            call.affine(&sees, -LOWEST, LOWEST, &mask)?;
            let mask = mask.reshape(&[n_keys, 1, n]);
            call.add(&rows.scores, &mask.with_dim(3), &rows.scores)?;
            match &a.sinks {
                Some(sinks) => call.copy(&sinks.split(0, r).with_dim(1).with_dim(0), &rows.more)?,
                None => call.fill(&rows.more, NOTHING)?,
            }
            let shares = rows.soft_max(call)?; // [n_keys, r, n, n_kv_heads] with a gap of one
            let shares = call.dense(&shares, ACL_FLOAT)?.reshape(&[n_keys, r * n, n_kv_heads]);

            let d = v.ne[1];
            let out = call.temporary(ACL_FLOAT, &[d, r * n, n_kv_heads])?;
            call.product(&v, &shares, &out)?;
            let out = out.reshape(&[d, r, n, n_kv_heads]).permute(&[0, 1, 3, 2]);
            call.copy(&out, &a.y.slice(1, start, n).split(0, d * r).split(0, d))
        })?;
    }
    Ok(())
}

/// y = softcap · tanh(x · scale / softcap), or x · scale.
fn capped(call: &mut Call<'_>, p: &AttentionParams, x: &Operand, y: &Operand) -> Result<()> {
    if p.softcap == 0.0 {
        return call.scale(x, p.scale, y);
    }
    call.scale(x, p.scale / p.softcap, x)?;
    call.tanh(x, x)?;
    call.scale(x, p.softcap, y)
}

/// scores [n_keys, r, n, n_kv_heads] += slope · distance; distances [capacity, n] are those of each token's sequence.
fn add_alibi(
    call: &mut Call<'_>,
    scores: &Operand,
    distances: &Operand,
    slopes: &Operand,
    n_seqs: i64,
) -> Result<()> {
    let (capacity, n) = (distances.ne[0], distances.ne[1]);
    let bias = call.temporary(ACL_FLOAT, &[capacity, scores.ne[1], n, scores.ne[3]])?;
    call.mul(&distances.with_dim(1).with_dim(3), slopes, &bias)?;
    for s in 0..n_seqs {
        let part = scores.slice(0, s * capacity, capacity);
        call.add(&part, &bias, &part)?;
    }
    Ok(())
}
