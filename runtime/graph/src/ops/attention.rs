//! y = softmax(softcap(q · k · scale) + bias) · v over the sequences of a paged KV cache.
//!
//! Position p of sequence s is in slot block_table[p / block_size, s] · block_size + p mod block_size of the caches.
//! Query i of n of a sequence has position p = seq_len - n + i and sees keys up to its own position, the last `window` of
//! them; or, `bidirectional`, all of the sequence, those at most window / 2 positions from p. With `chunk`, only keys of
//! positions k with ⌊k / chunk⌋ = ⌊p / chunk⌋. ALiBi's bias is -slope · |p - k|.
//! Head h reads KV head h / (n_heads / n_kv_heads). Tokens of no sequence give zeros; keys outside the cache are unseen.
//!
//! Result: F32 [v_dim·n_heads, n_tokens] of q F32 [head_dim, n_heads, n_tokens], caches [head_dim·n_kv_heads, n_slots]
//! of any dtype that can be decoded, and I32 block table, sequence lengths and query starts.

use super::paged_mask::{self, Reach};
use super::soft_max::{alibi_slope, soft_max_row};
use super::{Inferred, Rules, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{
    DType, Op,
    op::{AttentionParams, SoftMaxParams},
};

#[path = "attention_cases.rs"]
mod attention_cases;

/// Where the sequences of a step are in the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Paged {
    /// I32 [max_blocks, n_seqs]: blocks of each sequence, in order of position.
    pub block_table: Tensor,
    /// I32 [n_seqs]: tokens of each sequence, the new ones included; 0 for rows not in use.
    pub seq_lens: Tensor,
    /// I32 [n_seqs + 1]: each sequence's first query among the tokens; the last is the end. One below those before it
    /// counts as the largest of them, one past the tokens as their number.
    pub query_starts: Tensor,
}

impl Graph {
    /// Attention of `q` [head_dim, n_heads, n_tokens] over `k_cache` [head_dim · n_kv_heads, n_slots] and `v_cache`
    /// [head_dim_v · n_kv_heads, n_slots]: [head_dim_v · n_heads, n_tokens].
    pub fn attention(
        &mut self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        paged: &Paged,
        p: &AttentionParams,
    ) -> Tensor {
        let Paged { block_table, seq_lens, query_starts } = *paged;
        let src = [q, k_cache, v_cache, block_table, seq_lens, query_starts].map(Some);
        self.push(Op::Attention, &src, &p.to_bytes())
    }

    /// As [`Graph::attention`], with one more score per head, `sinks` [n_heads], that takes its share of the softmax.
    pub fn attention_with_sinks(
        &mut self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        sinks: Tensor,
        paged: &Paged,
        p: &AttentionParams,
    ) -> Tensor {
        let Paged { block_table, seq_lens, query_starts } = *paged;
        let src = [q, k_cache, v_cache, block_table, seq_lens, query_starts, sinks].map(Some);
        self.push(Op::Attention, &src, &p.to_bytes())
    }
}

pub(super) const RULES: Rules =
    Rules { infer, reference, decompose: Some(decompose), cases: attention_cases::cases };

/// Dims of one attention, from operands that `infer` accepted.
struct Dims {
    head_dim: usize,
    head_dim_v: usize,
    n_heads: usize,
    n_kv_heads: usize,
    n_tokens: usize,
    n_slots: usize,
}

impl Dims {
    fn of(q: Shape, v: Shape, p: &AttentionParams) -> Dims {
        let n_kv_heads = p.n_kv_heads.max(1) as usize;
        Dims {
            head_dim: q[0] as usize,
            head_dim_v: v[0] as usize / n_kv_heads,
            n_heads: q[1] as usize,
            n_kv_heads,
            n_tokens: q[2] as usize,
            n_slots: v[1] as usize,
        }
    }
}

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(AttentionParams::from_bytes(params))?;
    let q = check::floats(src, 0, "q")?;
    let k = check::decodable(src, 1, "K cache")?;
    let v = check::decodable(src, 2, "V cache")?;
    let [head_dim, n_heads, n_tokens, _] = q.ne;
    let n_kv_heads = p.n_kv_heads as u64;
    if q.ne[3] != 1 || n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
        return Err(format!("q {:?} with {n_kv_heads} KV heads", q.ne));
    }
    if p.block_size == 0 {
        return Err("blocks of 0 slots".to_string());
    }
    if head_dim.checked_mul(n_kv_heads) != Some(k.ne[0]) || k.ne[2..] != [1, 1] {
        return Err(format!("K cache {:?} for {n_kv_heads} KV heads of {head_dim}", k.ne));
    }
    if v.ne[0] % n_kv_heads != 0 || v.ne[1..] != k.ne[1..] {
        return Err(format!("V cache {:?} beside a K cache {:?}", v.ne, k.ne));
    }
    paged_mask::check_paging(src, 3)?;
    if let Some(sinks) = check::optional_floats(src, 6, "sinks")? {
        check::vector(sinks, n_heads, "sinks")?;
    }
    let n = (v.ne[0] / n_kv_heads).checked_mul(n_heads).ok_or("the result is too big")?;
    Ok((DType::F32, [n, n_tokens, 1, 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = AttentionParams::from_bytes(params).unwrap_or_default();
    let (q, k, v) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let sinks = check::optional_arg(src, 6);
    let d = Dims::of(q.ne, v.ne, &p);
    let reach = Reach { window: p.window, chunk: p.chunk, bidirectional: p.bidirectional != 0 };
    let mut y = vec![0.0; d.head_dim_v * d.n_heads * d.n_tokens];
    for (token, query) in paged_mask::queries(src, 3, d.n_tokens) {
        let seen: Vec<(i64, usize)> = paged_mask::visible_keys(src, 3, query, reach, p.block_size)
            .filter_map(|key| {
                let slot = paged_mask::slot_of(src, 3, query.seq, key, p.block_size, d.n_slots)?;
                Some((key, slot))
            })
            .collect();
        for head in 0..d.n_heads {
            let kv_head = head / (d.n_heads / d.n_kv_heads);
            let q_row = q.row(token * d.n_heads + head);
            let slope = if p.max_bias > 0.0 { alibi_slope(head, d.n_heads, p.max_bias) } else { 0.0 };
            let mut scores: Vec<f32> = seen
                .iter()
                .map(|&(key, slot)| {
                    let k_row = &k.row(slot)[kv_head * d.head_dim..][..d.head_dim];
                    soft_cap(dot(q_row, k_row) * p.scale, p.softcap) - slope * (query.pos - key).abs() as f32
                })
                .collect();
            soft_max_row(&mut scores, sinks.map(|s| s.floats()[head]));
            let y_head = &mut y[(token * d.n_heads + head) * d.head_dim_v..][..d.head_dim_v];
            for (i, y) in y_head.iter_mut().enumerate() {
                let v_at = |slot: usize| v.row(slot)[kv_head * d.head_dim_v + i] as f64;
                *y = scores.iter().zip(&seen).map(|(w, s)| *w as f64 * v_at(s.1)).sum::<f64>() as f32;
            }
        }
    }
    Value::f32([(d.head_dim_v * d.n_heads) as u64, d.n_tokens as u64, 1, 1], y)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    super::mul_mat::dot(a, b)
}

pub(super) fn soft_cap(score: f32, cap: f32) -> f32 {
    if cap == 0.0 { score } else { cap * (score / cap).tanh() }
}

/// Bytes of F32 scores that a decomposition computes at a time, unless that takes more than [`MAX_CHUNKS`] chunks.
const MAX_SCORE_BYTES: u64 = 64 << 20;

/// Chunks of queries in a decomposition: each adds nodes to the graph.
const MAX_CHUNKS: u64 = 16;

/// Scores of queries with all slots, a mask, their softmax, and its product with the transposed V: in chunks of queries, since
/// scores of all at once take n_slots · n_tokens · n_heads floats.
/// Not for ALiBi: the mask gives the keys that a query attends to, not how far they are.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    decompose_chunked(g, node, MAX_SCORE_BYTES)
}

fn decompose_chunked(g: &mut Graph, node: &Node, max_score_bytes: u64) -> Option<Tensor> {
    let p = AttentionParams::from_bytes(&node.params)?;
    if p.max_bias > 0.0 {
        return None;
    }
    let [q, k, v, block_table, seq_lens, query_starts] = *node.src.first_chunk()?;
    let sinks = node.src.get(6).copied().flatten();
    let (q, k, v) = (q?, k?, v?);
    let d = Dims::of(g.ne(q), g.ne(v), &p);
    let (n_slots, n_tokens, n_kv_heads) = (d.n_slots as u64, d.n_tokens as u64, d.n_kv_heads as u64);

    let q = g.permute(q, [0, 2, 1, 3]); // [head_dim, n_tokens, n_heads]
    let k = cache_heads(g, k, n_kv_heads);
    let k = g.permute(k, [0, 2, 1, 3]); // [head_dim, n_slots, n_kv_heads]
    let v = cache_heads(g, v, n_kv_heads); // [head_dim_v, n_kv_heads, n_slots]
    let v = g.permute(v, [2, 0, 1, 3]);
    let v = g.cont(v); // [n_slots, head_dim_v, n_kv_heads]
    let mask = g.paged_mask(block_table?, seq_lens?, query_starts?, n_slots, n_tokens, &p);

    let n_chunk = chunk_tokens(n_slots.saturating_mul(4 * d.n_heads as u64), n_tokens, max_score_bytes);
    let mut parts = vec![];
    for start in (0..n_tokens).step_by(n_chunk as usize) {
        let n = n_chunk.min(n_tokens - start);
        let q = g.slice(q, 1, start, n);
        let scores = g.mul_mat(k, q); // [n_slots, n, n_heads]
        let (scores, scale) = capped(g, scores, p.scale, p.softcap);
        let mask = g.slice(mask, 1, start, n);
        let weights = g.soft_max_with(scores, Some(mask), sinks, &SoftMaxParams { scale, max_bias: 0.0 });
        let y = g.mul_mat(v, weights); // [head_dim_v, n, n_heads]
        let y = g.permute(y, [0, 2, 1, 3]);
        let y = g.cont(y);
        parts.push(g.reshape(y, &[(d.head_dim_v * d.n_heads) as u64, n]));
    }
    joined(g, &parts)
}

/// Queries whose scores, of so many bytes each, are computed at a time: whole tiles of 16 where that is possible.
fn chunk_tokens(bytes_per_token: u64, n_tokens: u64, max_bytes: u64) -> u64 {
    let fit = max_bytes / bytes_per_token.max(1);
    let fit = if fit >= 16 { fit / 16 * 16 } else { fit };
    fit.max(n_tokens.div_ceil(MAX_CHUNKS)).clamp(1, n_tokens.max(1))
}

/// All parts, one after the other in dim 1, as a balanced tree: each row is copied log2 times.
fn joined(g: &mut Graph, parts: &[Tensor]) -> Option<Tensor> {
    match parts {
        [] => None,
        [one] => Some(*one),
        _ => {
            let (a, b) = parts.split_at(parts.len() / 2);
            let (a, b) = (joined(g, a)?, joined(g, b)?);
            Some(g.concat(a, b, 1))
        }
    }
}

/// Scores and a factor whose product is softcap · tanh(scores · scale / softcap), or scores · scale without a cap.
pub(super) fn capped(g: &mut Graph, scores: Tensor, scale: f32, softcap: f32) -> (Tensor, f32) {
    if softcap == 0.0 {
        return (scores, scale);
    }
    let small = g.scale(scores, scale / softcap);
    (g.tanh(small), softcap)
}

/// A cache as F32 [head_dim, n_kv_heads, n_slots].
fn cache_heads(g: &mut Graph, cache: Tensor, n_kv_heads: u64) -> Tensor {
    let cache = if g.def(cache).dtype == DType::F32 { cache } else { g.cast(cache, DType::F32) };
    g.split_heads(cache, n_kv_heads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Role;
    use crate::{plan, reference};

    #[test]
    fn a_decomposition_in_chunks_computes_what_attention_computes() {
        let mut n_chunked = 0;
        for case in attention_cases::cases() {
            let node = case.graph.nodes.last().unwrap().clone();
            let mut g = case.graph.clone();
            let Some(made) = decompose_chunked(&mut g, &node, 1) else { continue };
            n_chunked += usize::from(g.nodes.iter().filter(|n| n.op == Op::SoftMax).count() > 1);
            let mut memory = case.values(1).unwrap();
            reference::run(&g, &mut memory).unwrap();
            let (y, expected) = (memory.get(&g, made).unwrap(), memory.get(&g, node.dst).unwrap());
            assert_eq!(y.ne, expected.ne, "{}", case.name);
            let near = y
                .floats()
                .iter()
                .zip(expected.floats())
                .all(|(a, b)| (a - b).abs() < 1e-4 * b.abs().max(1.0));
            assert!(near, "{}", case.name);
        }
        assert!(n_chunked > 20, "{n_chunked}");
    }

    #[test]
    fn chunks_are_whole_tiles_that_fit_and_not_too_many() {
        assert_eq!(chunk_tokens(4 * 14 * 32768, 512, 64 << 20), 32, "36 fit");
        assert_eq!(chunk_tokens(4 * 14 * 4096, 512, 64 << 20), 288);
        assert_eq!(chunk_tokens(4 * 14 * 512, 512, 64 << 20), 512, "all");
        assert_eq!(chunk_tokens(4 * 32 * 131072, 512, 64 << 20), 32, "4 fit, in more than 16 chunks");
        assert_eq!(chunk_tokens(4 * 32 * 131072, 1, 64 << 20), 1, "a decode");
        assert_eq!(chunk_tokens(0, 0, 64 << 20), 1);
    }

    /// Qwen2.5 0.5B's attention over a context of 32768: 14 heads on 2 KV heads of 64, batch 512. Its scores take 896 MiB
    /// at once.
    #[test]
    fn memory_of_a_decomposition_is_bounded_at_long_contexts() {
        let mut g = Graph::new();
        let q = g.input("q", DType::F32, &[64, 14, 512]);
        let k = g.state("k", DType::F16, &[128, 32768], Role::KCache);
        let v = g.state("v", DType::F16, &[128, 32768], Role::VCache);
        let paged = Paged {
            block_table: g.input("block_table", DType::I32, &[2048, 1]),
            seq_lens: g.input("seq_lens", DType::I32, &[1]),
            query_starts: g.input("query_starts", DType::I32, &[2]),
        };
        let p = AttentionParams { n_kv_heads: 2, block_size: 16, scale: 0.125, ..Default::default() };
        let y = g.attention(q, k, v, &paged, &p);
        g.output(y, "y");
        let g = g.finish().unwrap().expand(|_, _| true);
        let items: Vec<_> = plan::lifetimes(&g, 0..g.nodes.len())
            .iter()
            .map(|l| plan::Item {
                size: g.def(l.tensor).n_bytes(),
                first_use: l.first_use,
                last_use: l.last_use,
            })
            .collect();
        let total = plan::plan(&items, 64).total;
        assert!(total < 300 << 20, "{} MiB", total >> 20);
    }
}
