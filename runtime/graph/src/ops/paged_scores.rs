//! y[i, t] = Σₕ w[h, t] · max(qₕ · kᵢ, 0) for the keys of a paged cache: how well each suits a query, of models that attend
//! to few keys and find them by an index (DeepSeek-V3.2).
//!
//! Key i is that of position (i + 1) · stride - 1, so that it may stand for the last `stride` positions up to its own. Keys
//! after the query's position or outside the cache have -inf; tokens of no sequence have it everywhere. Without weights
//! they are 1. `by_head`: y[i, h, t] = qₕ · kᵢ, as it is.
//!
//! Result: F32 [max_blocks · block_size / stride, n_tokens], or [.., n_heads, n_tokens], of q F32 [dim, n_heads, n_tokens],
//! a cache [dim, n_slots] of any dtype that can be decoded, I32 block table, sequence lengths and query starts, and weights
//! F32 [n_heads, n_tokens].

use super::attention::Paged;
use super::paged_mask::{self, check_paging};
use super::{Inferred, Rules, case::Case, check, mul_mat::dot, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::PagedScoresParams};

impl Graph {
    /// Scores of the keys in `cache` [dim, n_slots] for the queries `q` [dim, n_heads, n_tokens].
    pub fn paged_scores(
        &mut self,
        q: Tensor,
        cache: Tensor,
        weights: Option<Tensor>,
        paged: &Paged,
        p: &PagedScoresParams,
    ) -> Tensor {
        let Paged { block_table, seq_lens, query_starts } = *paged;
        let required = [q, cache, block_table, seq_lens, query_starts].map(Some);
        let src: Vec<_> = required.into_iter().chain(weights.map(Some)).collect();
        self.push(Op::PagedScores, &src, &p.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(PagedScoresParams::from_bytes(params))?;
    let [dim, n_heads, n_tokens, ne3] = check::floats(src, 0, "q")?.ne;
    let cache = check::decodable(src, 1, "cache")?.ne;
    if ne3 != 1 || cache != [dim, cache[1], 1, 1] {
        return Err(format!("q {:?} with a cache {cache:?}", [dim, n_heads, n_tokens, ne3]));
    }
    if p.block_size == 0 {
        return Err("blocks of 0 slots".to_string());
    }
    check_paging(src, 2)?;
    let expected = [n_heads, n_tokens, 1, 1];
    match check::optional_floats(src, 5, "weights")? {
        Some(weights) if p.by_head != 0 || weights.ne != expected => {
            return Err(format!("weights {:?} for {n_heads} heads and {n_tokens} tokens", weights.ne));
        }
        _ => {}
    }
    let max_blocks = check::given(src, 2, "block table")?.ne[0];
    let n_positions = max_blocks.checked_mul(p.block_size.into()).ok_or("the result is too big")?;
    let n_keys = n_positions / u64::from(p.stride.max(1));
    check::product(&[n_keys, n_heads, n_tokens])?;
    Ok((DType::F32, if p.by_head == 0 { [n_keys, n_tokens, 1, 1] } else { [n_keys, n_heads, n_tokens, 1] }))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = PagedScoresParams::from_bytes(params).unwrap_or_default();
    let (q, cache, weights) = (check::arg(src, 0), check::arg(src, 1), check::optional_arg(src, 5));
    let [_, n_heads, n_tokens, _] = q.ne.map(|n| n as usize);
    let stride = p.stride.max(1) as usize;
    let n_keys = check::arg(src, 2).ne[0] as usize * p.block_size as usize / stride;
    let n_rows = if p.by_head == 0 { 1 } else { n_heads };

    let mut y = vec![f32::NEG_INFINITY; n_keys * n_rows * n_tokens];
    for (token, query) in paged_mask::queries(src, 2, n_tokens) {
        let n_seen = usize::try_from(query.pos + 1).unwrap_or(0) / stride;
        for i in 0..n_seen.min(n_keys) {
            let at = ((i + 1) * stride - 1) as i64;
            let n_slots = cache.ne[1] as usize;
            let Some(slot) = paged_mask::slot_of(src, 2, query.seq, at, p.block_size, n_slots) else {
                continue;
            };
            let score = |head: usize| dot(q.row(token * n_heads + head), cache.row(slot));
            if p.by_head != 0 {
                (0..n_heads).for_each(|head| y[(token * n_heads + head) * n_keys + i] = score(head));
                continue;
            }
            let weight = |head: usize| weights.map_or(1.0, |weights| weights.row(token)[head]);
            y[token * n_keys + i] = (0..n_heads).map(|head| weight(head) * score(head).max(0.0)).sum();
        }
    }
    let (n_heads, n_tokens) = (n_heads as u64, n_tokens as u64);
    let n_keys = n_keys as u64;
    Value::f32(if p.by_head == 0 { [n_keys, n_tokens, 1, 1] } else { [n_keys, n_heads, n_tokens, 1] }, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (dim, n_heads) in [(1, 1), (32, 4), (33, 3), (64, 1), (128, 7)] {
        for cache in [DType::F32, DType::F16, DType::BF16, DType::Q8_0] {
            if dim % 32 == 0 || cache != DType::Q8_0 {
                cases.push(case([dim, n_heads], cache, PagedScoresParams::default(), true));
            }
        }
        for (stride, by_head) in [(1, 0), (4, 0), (3, 0), (4, 1), (0, 1), (100, 0)] {
            let p = PagedScoresParams { stride, by_head, ..Default::default() };
            cases.push(case([dim, n_heads], DType::F32, p, false));
        }
    }
    cases
}

/// A decode, a chunk of a prompt, a row not in use, a prompt, a token of no sequence.
fn case([dim, n_heads]: [u64; 2], dtype: DType, p: PagedScoresParams, has_weights: bool) -> Case {
    let name = format!(
        "{n_heads} heads of {dim}, {dtype} cache, stride {}, by head {}, weights {has_weights}",
        p.stride, p.by_head
    );
    let p = PagedScoresParams { block_size: 4, ..p };
    Case::new(name, |g, ints| {
        let q = g.input("q", DType::F32, &[dim, n_heads, 10]);
        let cache = g.state("index_cache", dtype, &[dim, 36], Role::KCache);
        let weights = has_weights.then(|| g.input("weights", DType::F32, &[n_heads, 10]));
        let block_table = g.input("block_table", DType::I32, &[3, 4]);
        let seq_lens = g.input("seq_lens", DType::I32, &[4]);
        let query_starts = g.input("query_starts", DType::I32, &[5]);
        ints.push((block_table, vec![5, 0, 2, 1, 4, 0, 0, 0, 0, 8, 7, -1]));
        ints.push((seq_lens, vec![9, 7, 0, 5]));
        ints.push((query_starts, vec![0, 1, 4, 4, 9]));
        g.paged_scores(q, cache, weights, &Paged { block_table, seq_lens, query_starts }, &p);
    })
    .nmse(if dtype == DType::F32 { 1e-7 } else { 5e-4 })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats, ints};
    use super::*;

    /// Two heads; one sequence of three tokens, of which two are new, in blocks of two.
    #[test]
    fn a_key_counts_by_heads_that_it_suits() {
        let build = |g: &mut Graph| {
            let q = g.input("q", DType::F32, &[1, 2, 2]);
            let cache = g.input("cache", DType::F32, &[1, 4]);
            let weights = g.input("weights", DType::F32, &[2, 2]);
            let block_table = g.input("block_table", DType::I32, &[2, 1]);
            let seq_lens = g.input("seq_lens", DType::I32, &[1]);
            let query_starts = g.input("query_starts", DType::I32, &[2]);
            let p = PagedScoresParams { block_size: 2, ..Default::default() };
            let y =
                g.paged_scores(q, cache, Some(weights), &Paged { block_table, seq_lens, query_starts }, &p);
            g.clamp(y, -999.0, 999.0)
        };
        let inputs = [
            ("q", floats(&[1., -1., 2., -2.])),
            ("cache", floats(&[7., 0., 3., -5.])),
            ("weights", floats(&[10., 100., 1., -1.])),
            ("block_table", ints(&[1, 0])),
            ("seq_lens", ints(&[3])),
            ("query_starts", ints(&[0, 2])),
        ];
        let none = -999.0;
        check(build, &inputs, &[30., 500., none, none, 6., -10., 14., none]);
    }
}
