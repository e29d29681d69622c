//! Operands for attention over contiguous keys: heads, dtypes of k and v, masks, slopes, sinks, caps, permuted caches.

use crate::graph::Graph;
use crate::ops::case::Case;
use crate::tensor::{Role, Tensor};
use llmrt_abi::{DType, op::AttentionContiguousParams};

/// Sizes and dtypes of one attention.
#[derive(Clone, Copy)]
struct Sizes {
    head_dim: u64,
    head_dim_v: u64,
    n_heads: u64,
    n_kv_heads: u64,
    n_q: u64,
    n_kv: u64,
    n: u64,
    k: DType,
    v: DType,
    /// Whether k and v have the layout of caches: heads of a token side by side.
    permuted: bool,
}

const SIZES: Sizes = Sizes {
    head_dim: 32,
    head_dim_v: 32,
    n_heads: 4,
    n_kv_heads: 2,
    n_q: 3,
    n_kv: 21,
    n: 1,
    k: DType::F32,
    v: DType::F32,
    permuted: false,
};

/// Mask and what changes the scores.
#[derive(Clone, Copy)]
struct Scores {
    /// Dtype, rows past the queries, dims 2 and 3; some keys are hidden.
    mask: Option<(DType, u64, [u64; 2])>,
    sinks: bool,
    max_bias: f32,
    softcap: f32,
}

const CAUSAL: Scores =
    Scores { mask: Some((DType::F16, 0, [1, 1])), sinks: false, max_bias: 0.0, softcap: 0.0 };
const ALL: Scores = Scores { mask: None, ..CAUSAL };

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    sizes(&mut cases);
    dtypes(&mut cases);
    scores(&mut cases);
    cases.push(Case::new("k and v of different heads, broadcast over sequences", |g, _| {
        let q = g.input("q", DType::F32, &[16, 3, 4, 2]);
        let k = g.input("k", DType::F32, &[16, 7, 2, 1]);
        let v = g.input("v", DType::F16, &[24, 7, 1, 2]);
        let p = AttentionContiguousParams { scale: 0.25, ..Default::default() };
        g.attention_contiguous([q, k, v], None, None, &p);
    }));
    cases.push(Case::new("queries and a mask that are parts of larger tensors", |g, _| {
        let q = g.input("q", DType::F32, &[96, 2, 5]);
        let q = g.slice(q, 0, 32, 32);
        let q = g.permute(q, [0, 2, 1, 3]); // [32, 5, 2]
        let k = g.input("k", DType::F32, &[32, 9, 2]);
        let v = g.input("v", DType::F32, &[32, 9, 2]);
        let mask = g.input("mask", DType::F16, &[40, 12]);
        let mask = g.slice(mask, 0, 4, 9);
        let mask = g.slice(mask, 1, 3, 7);
        let p = AttentionContiguousParams { scale: 0.25, ..Default::default() };
        g.attention_contiguous([q, k, v], Some(mask), None, &p);
    }));
    cases
}

fn sizes(cases: &mut Vec<Case>) {
    for (head_dim, head_dim_v) in
        [(1, 1), (7, 5), (40, 40), (64, 64), (72, 64), (65, 67), (80, 80), (96, 96), (112, 112), (128, 128)]
            .into_iter()
            .chain([(192, 128), (256, 256), (576, 512)])
    {
        for n_q in [1, 5] {
            let s = Sizes { head_dim, head_dim_v, n_q, ..SIZES };
            cases.push(case(format!("head dims {head_dim} and {head_dim_v}, {n_q} queries"), s, CAUSAL));
        }
    }
    for (n_heads, n_kv_heads) in [(1, 1), (4, 4), (8, 2), (6, 1), (6, 3), (12, 4)] {
        for (n_q, n_kv, n) in [(1, 1, 1), (1, 40, 3), (2, 16, 1), (17, 33, 1), (35, 70, 2), (1, 1030, 1)] {
            let s = Sizes { n_heads, n_kv_heads, n_q, n_kv, n, ..SIZES };
            let name = format!("{n_heads} heads on {n_kv_heads}, {n_q} queries, {n_kv} keys, {n} sequences");
            cases.push(case(name, s, ALL));
        }
    }
}

fn dtypes(cases: &mut Vec<Case>) {
    use DType::*;
    let all = [F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL];
    let mixed = [(F16, F32), (F32, F16), (Q8_0, Q4_0), (Q4_0, F16), (Q4_0, Q8_0), (F16, Q4_0), (BF16, Q5_1)];
    for (k, v) in all.into_iter().map(|t| (t, t)).chain(mixed) {
        for permuted in [false, true] {
            for (n_q, n) in [(1, 1), (6, 2)] {
                let s = Sizes { head_dim: 64, head_dim_v: 96, n_q, n, k, v, permuted, ..SIZES };
                let name = format!("k of {k}, v of {v}, {n_q} queries of {n}, permuted {permuted}");
                cases.push(case(name, s, CAUSAL));
            }
        }
    }
}

fn scores(cases: &mut Vec<Case>) {
    for dtype in [DType::F32, DType::F16] {
        for (more, dims) in [(0, [1, 1]), (61, [1, 1]), (0, [6, 1]), (2, [3, 2]), (0, [1, 2])] {
            for sinks in [false, true] {
                for (max_bias, softcap) in [(0.0, 0.0), (8.0, 0.0), (0.0, 10.0), (8.0, 1.5)] {
                    let s = Sizes { n_heads: 6, n: 2, ..SIZES };
                    let c = Scores { mask: Some((dtype, more, dims)), sinks, max_bias, softcap };
                    let mask = format!("mask of {dtype}, {more} rows more, {dims:?}");
                    let name = format!("{mask}, sinks {sinks}, bias {max_bias}, cap {softcap}");
                    cases.push(case(name, s, c));
                }
            }
        }
    }
    for sinks in [false, true] {
        for softcap in [0.0, 2.0] {
            let name = format!("no mask, sinks {sinks}, cap {softcap}");
            cases.push(case(name, SIZES, Scores { sinks, softcap, ..ALL }));
        }
        let one_key = Sizes { n_kv: 1, n_q: 9, ..SIZES };
        cases.push(case(
            format!("queries that see no key, sinks {sinks}"),
            one_key,
            Scores { sinks, ..CAUSAL },
        ));
    }
}

fn case(name: impl Into<String>, s: Sizes, c: Scores) -> Case {
    let quantised = s.k.is_quantised() || s.v.is_quantised();
    Case::new(name, |g, _| {
        let q = g.input("q", DType::F32, &[s.head_dim, s.n_q, s.n_heads, s.n]);
        let k = cache(g, "k", s.k, s.head_dim, s, Role::KCache);
        let v = cache(g, "v", s.v, s.head_dim_v, s, Role::VCache);
        let mask = c.mask.map(|(dtype, more, [n_heads, n])| {
            let mask = g.input("mask", DType::F32, &[s.n_kv, s.n_q + more, n_heads, n]);
            let mask = hide_some(g, mask);
            if dtype == DType::F32 { mask } else { g.cast(mask, dtype) }
        });
        let sinks = c.sinks.then(|| g.input("sinks", DType::F32, &[s.n_heads]));
        let scale = (s.head_dim as f32).sqrt().recip();
        let p = AttentionContiguousParams { scale, softcap: c.softcap, max_bias: c.max_bias };
        g.attention_contiguous([q, k, v], mask, sinks, &p);
    })
    .nmse(if quantised { 5e-4 } else { 1e-7 })
}

/// [dim, n_kv, n_kv_heads, n].
fn cache(g: &mut Graph, name: &str, dtype: DType, dim: u64, s: Sizes, role: Role) -> Tensor {
    if !s.permuted {
        return g.state(name, dtype, &[dim, s.n_kv, s.n_kv_heads, s.n], role);
    }
    let cache = g.state(name, dtype, &[dim, s.n_kv_heads, s.n_kv, s.n], role);
    g.permute(cache, [0, 2, 1, 3])
}

/// A mask of numbers below zero, of which those below -0.4 become -inf by overflow.
fn hide_some(g: &mut Graph, uniform: Tensor) -> Tensor {
    let above = g.scale_bias(uniform, -1.0, -0.4);
    let above = g.relu(above);
    let hidden = g.scale(above, -1e30);
    let hidden = g.scale(hidden, 1e30);
    let some = g.scale_bias(uniform, 0.5, -0.5);
    g.add(some, hidden)
}
