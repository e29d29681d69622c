//! Operands for sparse attention: few and many positions, in any order, repeated, unseen and outside; sets for all heads and
//! for each KV head; heads, dtypes of the cache, sinks.

use crate::graph::Graph;
use crate::ops::attention::Paged;
use crate::ops::case::Case;
use crate::tensor::{Role, Tensor};
use llmrt_abi::{DType, op::SparseAttentionParams};

/// Heads and the cache.
#[derive(Clone, Copy)]
struct Heads {
    dims: [u64; 2],
    n_heads: u64,
    n_kv_heads: u64,
    cache: DType,
}

/// How many positions there are, for whom, and which.
#[derive(Clone, Copy)]
struct Sets {
    n: u64,
    n_sets: u64,
    at: fn(i32) -> i32,
}

const HEADS: Heads = Heads { dims: [32, 32], n_heads: 4, n_kv_heads: 2, cache: DType::F32 };
/// Some of 40 positions, some twice.
const SOME: Sets = Sets { n: 9, n_sets: 1, at: |i| i * 7 % 40 };

pub(super) fn cases() -> Vec<Case> {
    let mut cases = to_all();
    for cache in [DType::F32, DType::F16, DType::BF16, DType::Q8_0] {
        for (dims, n_heads, n_kv_heads) in
            [([32, 32], 4, 2), ([64, 32], 12, 1), ([576, 512], 3, 1), ([96, 64], 33, 1)]
        {
            cases.push(case("some positions", Heads { dims, n_heads, n_kv_heads, cache }, SOME, false));
        }
    }
    let odd = Heads { dims: [7, 5], n_heads: 6, n_kv_heads: 3, cache: DType::F32 };
    for n_sets in [1, 3] {
        cases.push(case("odd heads", odd, Sets { n_sets, ..SOME }, true));
    }
    for (name, at) in [
        ("the same one", (|_| 3) as fn(i32) -> i32),
        ("none", |_| -1),
        ("outside and unseen", |i| [i32::MIN, -1, 39, 40, i32::MAX, 2][i as usize % 6]),
        ("backwards", |i| 100 - i),
    ] {
        for n in [1, 130] {
            cases.push(case(name, HEADS, Sets { n, n_sets: 2, at }, n > 1));
        }
    }
    cases
}

/// Sets with every position.
pub(super) fn to_all() -> Vec<Case> {
    let all = Sets { n: 130, n_sets: 1, at: |i| i * 37 % 130 };
    let latent = Heads { dims: [96, 64], n_heads: 5, n_kv_heads: 1, cache: DType::F16 };
    [HEADS, latent].into_iter().map(|heads| case("all positions", heads, all, false)).collect()
}

/// A decode of a long text, a chunk of a prompt, a row not in use, a prompt, a token of no sequence.
fn case(name: &str, h: Heads, sets: Sets, has_sinks: bool) -> Case {
    let Heads { dims: [dim, dim_v], n_heads, n_kv_heads, cache } = h;
    let name = format!(
        "{name}, {} for {} sets, {n_heads} heads of {dim} and {dim_v} on {n_kv_heads}, {cache} cache, sinks {has_sinks}",
        sets.n, sets.n_sets
    );
    let p = SparseAttentionParams {
        n_kv_heads: n_kv_heads as u32,
        block_size: 8,
        scale: (dim as f32).sqrt().recip(),
    };
    Case::new(name, |g, ints| {
        let q = g.input("q", DType::F32, &[dim, n_heads, 12]);
        let k = g.state("k_cache", cache, &[dim * n_kv_heads, 200], Role::KCache);
        let v = g.state("v_cache", cache, &[dim_v * n_kv_heads, 200], Role::VCache);
        let paged = paged(g, ints);
        let positions = g.input("positions", DType::I32, &[sets.n, sets.n_sets, 12]);
        let of_token = |t: i32| (0..(sets.n * sets.n_sets) as i32).map(move |i| (sets.at)(i + t));
        ints.push((positions, (0..12).flat_map(of_token).collect()));
        let sinks = has_sinks.then(|| g.input("sinks", DType::F32, &[n_heads]));
        g.sparse_attention(q, k, v, positions, sinks, &paged, &p);
    })
    .nmse(if cache == DType::F32 { 1e-7 } else { 5e-4 })
}

fn paged(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>) -> Paged {
    let block_table = g.input("block_table", DType::I32, &[17, 4]);
    let seq_lens = g.input("seq_lens", DType::I32, &[4]);
    let query_starts = g.input("query_starts", DType::I32, &[5]);
    let blocks = |n: i32, first: i32| (0..17).map(move |i| if i < n { first + i * 5 % n } else { 0 });
    let rows = [blocks(16, 0), blocks(5, 16), blocks(0, 0), blocks(2, 22)];
    ints.push((block_table, rows.into_iter().flatten().collect()));
    ints.push((seq_lens, vec![123, 40, 0, 6]));
    ints.push((query_starts, vec![0, 1, 5, 5, 11]));
    Paged { block_table, seq_lens, query_starts }
}
