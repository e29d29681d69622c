//! y = softmax(q · k · scale) · v over a few keys of a paged KV cache, of models whose queries choose their keys
//! (DeepSeek-V3.2).
//!
//! `positions` [n, n_sets, n_tokens] are those of the keys that a query sees, in any order: one set for all heads, or one
//! for each KV head. Of them a query sees each once, up to its own position; others, such as -1, are none. A query without
//! keys gives zeros. Where positions are in the caches, which tokens are queries of which sequence, and sinks are as for
//! `attention`; with all positions in the sets the result is the same.
//!
//! Result: F32 [v_dim · n_heads, n_tokens] of q F32 [head_dim, n_heads, n_tokens], caches [head_dim · n_kv_heads, n_slots]
//! of any dtype that can be decoded, I32 block table, sequence lengths, query starts and positions, and sinks F32 [n_heads].

use super::attention::Paged;
use super::paged_mask::{self, check_paging};
use super::soft_max::soft_max_row;
use super::{Inferred, Rules, check, mul_mat::dot, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::SparseAttentionParams};

#[path = "sparse_attention_cases.rs"]
mod sparse_attention_cases;

impl Graph {
    /// Attention of `q` [head_dim, n_heads, n_tokens] over the keys at `positions` [n, n_sets, n_tokens] of `k_cache`
    /// [head_dim · n_kv_heads, n_slots] and `v_cache` [head_dim_v · n_kv_heads, n_slots]: [head_dim_v · n_heads, n_tokens].
    #[allow(clippy::too_many_arguments)]
    pub fn sparse_attention(
        &mut self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        positions: Tensor,
        sinks: Option<Tensor>,
        paged: &Paged,
        p: &SparseAttentionParams,
    ) -> Tensor {
        let Paged { block_table, seq_lens, query_starts } = *paged;
        let required = [q, k_cache, v_cache, block_table, seq_lens, query_starts, positions].map(Some);
        let src: Vec<_> = required.into_iter().chain(sinks.map(Some)).collect();
        self.push(Op::SparseAttention, &src, &p.to_bytes())
    }
}

pub(super) const RULES: Rules =
    Rules { infer, reference, decompose: None, cases: sparse_attention_cases::cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(SparseAttentionParams::from_bytes(params))?;
    let q = check::floats(src, 0, "q")?.ne;
    let (k, v) = (check::decodable(src, 1, "K cache")?.ne, check::decodable(src, 2, "V cache")?.ne);
    let ([head_dim, n_heads, n_tokens, _], n_kv_heads) = (q, u64::from(p.n_kv_heads));
    if q[3] != 1 || n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
        return Err(format!("q {q:?} with {n_kv_heads} KV heads"));
    }
    if p.block_size == 0 {
        return Err("blocks of 0 slots".to_string());
    }
    if head_dim.checked_mul(n_kv_heads) != Some(k[0]) || k[2..] != [1, 1] {
        return Err(format!("K cache {k:?} for {n_kv_heads} KV heads of {head_dim}"));
    }
    if v[0] % n_kv_heads != 0 || v[1..] != k[1..] {
        return Err(format!("V cache {v:?} beside a K cache {k:?}"));
    }
    check_paging(src, 3)?;
    let positions = check::ints(src, 6, "positions")?.ne;
    let n_sets = positions[1];
    if positions != [positions[0], n_sets, n_tokens, 1] || (n_sets != 1 && n_sets != n_kv_heads) {
        return Err(format!("positions {positions:?}, expected [n, 1 or {n_kv_heads}, {n_tokens}]"));
    }
    if let Some(sinks) = check::optional_floats(src, 7, "sinks")? {
        check::vector(sinks, n_heads, "sinks")?;
    }
    let n = (v[0] / n_kv_heads).checked_mul(n_heads).ok_or("the result is too big")?;
    Ok((DType::F32, [n, n_tokens, 1, 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = SparseAttentionParams::from_bytes(params).unwrap_or_default();
    let (q, k, v) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let (positions, sinks) = (check::arg(src, 6), check::optional_arg(src, 7));
    let [head_dim, n_heads, n_tokens, _] = q.ne.map(|n| n as usize);
    let [n_chosen, n_sets, ..] = positions.ne.map(|n| n as usize);
    let n_kv_heads = p.n_kv_heads as usize;
    let (dim_v, n_slots) = (v.ne[0] as usize / n_kv_heads, v.ne[1] as usize);

    let mut y = vec![0.0; dim_v * n_heads * n_tokens];
    for (token, query) in paged_mask::queries(src, 3, n_tokens) {
        for head in 0..n_heads {
            let kv_head = head / (n_heads / n_kv_heads);
            let set = token * n_sets + kv_head % n_sets;
            let mut chosen: Vec<i64> =
                positions.ints()[set * n_chosen..][..n_chosen].iter().map(|&at| at.into()).collect();
            chosen.retain(|at| (0..=query.pos).contains(at));
            chosen.sort_unstable();
            chosen.dedup();
            let slot = |&at: &i64| paged_mask::slot_of(src, 3, query.seq, at, p.block_size, n_slots);
            let slots: Vec<usize> = chosen.iter().filter_map(slot).collect();

            let q_row = q.row(token * n_heads + head);
            let score = |&slot: &usize| dot(q_row, &k.row(slot)[kv_head * head_dim..][..head_dim]) * p.scale;
            let mut weights: Vec<f32> = slots.iter().map(score).collect();
            soft_max_row(&mut weights, sinks.map(|sinks| sinks.floats()[head]));
            let y_head = &mut y[(token * n_heads + head) * dim_v..][..dim_v];
            for (i, y) in y_head.iter_mut().enumerate() {
                let v_at = |slot: usize| f64::from(v.row(slot)[kv_head * dim_v + i]);
                *y = weights.iter().zip(&slots).map(|(w, s)| f64::from(*w) * v_at(*s)).sum::<f64>() as f32;
            }
        }
    }
    Value::f32([(dim_v * n_heads) as u64, n_tokens as u64, 1, 1], y)
}

#[cfg(test)]
mod tests {
    use super::super::attention;
    use super::*;
    use crate::reference;
    use llmrt_abi::op::AttentionParams;

    #[test]
    fn attention_to_all_positions_is_attention() {
        for case in sparse_attention_cases::to_all() {
            let node = case.graph.nodes.last().unwrap().clone();
            let p = SparseAttentionParams::from_bytes(&node.params).unwrap();
            let dense = AttentionParams {
                n_kv_heads: p.n_kv_heads,
                block_size: p.block_size,
                scale: p.scale,
                ..Default::default()
            };
            let mut memory = case.values(1).unwrap();
            reference::run(&case.graph, &mut memory).unwrap();
            let values: Vec<_> =
                node.src.iter().flatten().map(|&t| memory.get(&case.graph, t).unwrap()).collect();
            let src: Vec<_> = values[..6].iter().map(Some).collect();
            let expected = attention::RULES.reference(&src, &dense.to_bytes());
            assert_eq!(
                memory.get(&case.graph, node.dst).unwrap().floats(),
                expected.floats(),
                "{}",
                case.name
            );
        }
    }
}
