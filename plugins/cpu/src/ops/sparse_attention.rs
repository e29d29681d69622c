//! y = softmax(q · k · scale) · v over a few keys of a paged KV cache.
//!
//! A piece of the work is a token with heads that share a KV head. Its keys are put in order of position, and then attended
//! to as `attention` attends to all: by the same kernel, so that the same keys give the same bits.

use super::attention::attend::attend;
use super::attention::query_tile::QueryTile;
use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Reach, Sizes};
use super::{Args, Output, Worker};
use crate::scratch::Arena;
use llmrt_plugin::abi::op::{AttentionParams, SparseAttentionParams};
use llmrt_plugin::{DType, NodeView, Reason};

/// Heads of a piece.
const HEADS: usize = 64;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(SparseAttentionParams::from_bytes(node.params_bytes()))?;
    let n_kv_heads = p.n_kv_heads as usize;
    ensure(n_kv_heads > 0 && p.block_size > 0, Reason::Param)?;
    let [head_dim, n_heads, n_tokens, ne3] = check::floats(node, 0)?.ne();
    let (k, v) = (check::decodable(node, 1)?.ne(), check::decodable(node, 2)?.ne());
    ensure(ne3 == 1 && n_heads.is_multiple_of(n_kv_heads), Reason::Shape)?;
    ensure(head_dim.checked_mul(n_kv_heads) == Some(k[0]) && k[2..] == [1, 1], Reason::Shape)?;
    ensure(v[0] % n_kv_heads == 0 && v[1..] == k[1..], Reason::Shape)?;
    paging::supports(node, 3)?;
    let [n, n_sets, ne2, ne3] = check::ints(node, 6)?.ne();
    ensure([ne2, ne3] == [n_tokens, 1] && (n_sets == 1 || n_sets == n_kv_heads), Reason::Shape)?;
    ensure(u32::try_from(n).is_ok(), Reason::Shape)?;
    if let Some(sinks) = check::optional_floats(node, 7)? {
        check::vector(&sinks, n_heads)?;
    }
    check::result(node, DType::F32, [v[0] / n_kv_heads * n_heads, n_tokens, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let given = a.params(SparseAttentionParams::from_bytes);
    let SparseAttentionParams { n_kv_heads, block_size, scale } = given;
    let p = AttentionParams { n_kv_heads, block_size, scale, ..AttentionParams::default() };
    let (q, k, v) = (a.arg(0), a.arg(1), a.arg(2));
    let ([_, n_heads, n_tokens, _], n_kv_heads) = (q.ne, n_kv_heads as usize);
    let sizes = Sizes { block_size, n_slots: k.ne[1], n_tokens };
    let (mut starts, mut slots) =
        (std::mem::take(&mut w.scratch.starts), std::mem::take(&mut w.scratch.slots));
    let paging = Paging::new(a, 3, sizes, Reach::CAUSAL, &mut starts);

    let n_group = n_heads / n_kv_heads;
    let mut heads_each = n_group.min(HEADS);
    while heads_each > 1 && n_tokens * n_kv_heads * n_group.div_ceil(heads_each) < w.rank.n {
        heads_each = heads_each.div_ceil(2);
    }
    let n_parts = n_group.div_ceil(heads_each);
    while let Some(i) = out.take(n_tokens * n_kv_heads * n_parts) {
        let (part, kv_head, token) = (i % n_parts, i / n_parts % n_kv_heads, i / n_parts / n_kv_heads);
        let first = kv_head * n_group + part * heads_each;
        let heads = first..(first + heads_each).min((kv_head + 1) * n_group);
        let dim_v = a.dst.ne[0] / n_heads;
        let Some(seq) = (0..paging.lens.len()).find(|&seq| paging.queries(seq).contains(&token)) else {
            let elems = heads.start * dim_v..heads.end * dim_v;
            // SAFETY: a piece has heads of a token, which no other piece has.
            unsafe { out.tile([elems, token..token + 1, 0..1, 0..1]) }.row([token, 0, 0]).fill(0.0);
            continue;
        };
        let n_sets = a.arg(6).ne[1];
        let chosen = a.arg(6).ints([kv_head % n_sets, token, 0]);
        let tile = QueryTile {
            isa: w.isa,
            p: &p,
            paging,
            q,
            k,
            v,
            y: &a.dst,
            sinks: a.src[7].as_ref().map(|t| t.row([0; 3])),
            seq,
            kv_head,
            heads,
            tokens: token..token + 1,
            positions: 0..usize::MAX,
            chosen: Some(in_order(&paging, seq, token, chosen, &mut slots)),
        };
        attend(&tile, None, w.scratch);
    }
    (w.scratch.starts, w.scratch.slots) = (starts, slots);
}

/// The slots of the chosen positions that the query sees, each once, in order of position.
fn in_order<'m>(
    paging: &Paging<'_>,
    seq: usize,
    token: usize,
    chosen: &[i32],
    memory: &'m mut Arena,
) -> &'m [usize] {
    let seen = paging.keys(seq, &(token..token + 1));
    let positions = memory.take::<usize>(chosen.len());
    let mut n = 0;
    for at in chosen.iter().filter_map(|&at| usize::try_from(at).ok()).filter(|at| seen.contains(at)) {
        positions[n] = at;
        n += 1;
    }
    let positions = &mut positions[..n];
    positions.sort_unstable();
    let mut kept = 0;
    for i in 0..n {
        if i == 0 || positions[i] != positions[i - 1] {
            positions[kept] = positions[i];
            kept += 1;
        }
    }
    let slots = &mut positions[..kept];
    slots.iter_mut().for_each(|at| *at = paging.slot(seq, *at).unwrap_or(usize::MAX));
    slots
}
