//! y = softmax(softcap(q · k · scale) + bias) · v, causal, over the sequences of a paged KV cache.
//!
//! A unit of work is some queries of a sequence with the heads that share a KV head. It walks the keys in tiles of 64
//! by position, and keeps a running softmax per query. What a query computes depends on its own position alone: neither
//! on the unit it is in nor on how a prompt was cut.

mod numbers;
mod scores;
pub mod softmax;
mod unit;
mod values;

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Sizes};
use super::{Args, Worker};
use llmrt_plugin::abi::op::AttentionParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;
use unit::Unit;

/// Queries times heads of a unit, about.
const UNIT_ROWS: usize = 64;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(AttentionParams::from_bytes(node.params_bytes()))?;
    let n_kv_heads = p.n_kv_heads as usize;
    ensure(n_kv_heads > 0 && p.block_size > 0, Reason::Param)?;
    let [head_dim, n_heads, n_tokens, ne3] = check::floats(node, 0)?.ne();
    let (k, v) = (check::decodable(node, 1)?.ne(), check::decodable(node, 2)?.ne());
    ensure(ne3 == 1 && n_heads.is_multiple_of(n_kv_heads), Reason::Shape)?;
    ensure(head_dim.checked_mul(n_kv_heads) == Some(k[0]) && k[2..] == [1, 1], Reason::Shape)?;
    ensure(v[0] % n_kv_heads == 0 && v[1..] == k[1..], Reason::Shape)?;
    paging::supports(node, 3)?;
    if let Some(sinks) = check::optional_floats(node, 6)? {
        check::vector(&sinks, n_heads)?;
    }
    check::result(node, DType::F32, [v[0] / n_kv_heads * n_heads, n_tokens, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let p = a.params(AttentionParams::from_bytes);
    let (q, k, v) = (a.arg(0), a.arg(1), a.arg(2));
    let n_tokens = q.ne[2];
    let sizes = Sizes { block_size: p.block_size, n_slots: k.ne[1], n_tokens, window: p.window };
    let mut starts = std::mem::take(&mut w.scratch.starts);
    let paging = Paging::new(a, 3, sizes, &mut starts);
    zero_unused(w, a, &paging, n_tokens);

    let cut = Cut::new(w.n, &paging, q.ne[1], p.n_kv_heads as usize);
    while let Some((seq, kv_head, heads, tokens)) = cut.unit(&paging, w.take_in_order()) {
        let unit = Unit {
            isa: w.isa,
            p: &p,
            paging,
            q,
            k,
            v,
            y: &a.dst,
            sinks: a.src[6].as_ref().map(|t| t.row([0; 3])),
            seq,
            kv_head,
            heads,
            tokens,
        };
        unit::attend(w.isa, &unit, w.scratch);
    }
    w.scratch.starts = starts;
}

/// Tokens that belong to no sequence give zeros.
fn zero_unused(w: &Worker<'_>, a: &Args, paging: &Paging<'_>, n_tokens: usize) {
    for token in w.share(n_tokens) {
        if !paging.all_queries().contains(&token) {
            // SAFETY: tokens are shared out, and no unit has this one.
            unsafe { a.dst.row_mut([token, 0, 0]) }.fill(0.0);
        }
    }
}

/// How the work is cut into units.
struct Cut {
    n_kv_heads: usize,
    /// Heads of a KV head.
    n_group: usize,
    /// Heads of a unit.
    heads: usize,
    /// Tokens of a unit.
    tokens: usize,
}

impl Cut {
    /// Units of about [`UNIT_ROWS`], or smaller ones if there would be fewer than threads.
    fn new(n_threads: usize, paging: &Paging<'_>, n_heads: usize, n_kv_heads: usize) -> Cut {
        let n_group = n_heads / n_kv_heads;
        let mut cut = Cut { n_kv_heads, n_group, heads: n_group, tokens: (UNIT_ROWS / n_group).max(1) };
        let mut n_units = cut.count(paging);
        while n_units > 0 && n_units < n_threads && cut.heads > 1 {
            cut.heads = cut.heads.div_ceil(2);
            n_units = cut.count(paging);
        }
        cut
    }

    fn count(&self, paging: &Paging<'_>) -> usize {
        (0..paging.lens.len()).map(|seq| self.per_seq(paging.queries(seq).len())).sum()
    }

    fn per_seq(&self, n_queries: usize) -> usize {
        n_queries.div_ceil(self.tokens) * self.n_kv_heads * self.n_group.div_ceil(self.heads)
    }

    /// Sequence, KV head, heads and tokens of unit `i`; later tokens, which see more keys, come first.
    fn unit(&self, paging: &Paging<'_>, mut i: usize) -> Option<(usize, usize, Range<usize>, Range<usize>)> {
        for seq in 0..paging.lens.len() {
            let queries = paging.queries(seq);
            let n = self.per_seq(queries.len());
            if i >= n {
                i -= n;
                continue;
            }
            let parts = self.n_group.div_ceil(self.heads);
            let (part, kv_head, chunk) =
                (i % parts, i / parts % self.n_kv_heads, i / parts / self.n_kv_heads);
            let head = kv_head * self.n_group + part * self.heads;
            let heads = head..(head + self.heads).min((kv_head + 1) * self.n_group);
            let start = queries.start + (queries.len().div_ceil(self.tokens) - 1 - chunk) * self.tokens;
            return Some((seq, kv_head, heads, start..(start + self.tokens).min(queries.end)));
        }
        None
    }
}
