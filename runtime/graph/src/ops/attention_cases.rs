//! Operands for attention: heads and KV heads, windows, dtypes of the cache, prefill in chunks, decodes, gaps.

use super::Paged;
use crate::graph::Graph;
use crate::ops::case::Case;
use crate::tensor::{Role, Tensor};
use llmrt_abi::{DType, op::AttentionParams};

/// Sequences of a step.
struct Step {
    block_size: u32,
    n_blocks: u64,
    /// Blocks, tokens and new tokens of each sequence.
    seqs: Vec<(Vec<i32>, i32, i32)>,
    /// Tokens at the end that belong to no sequence.
    n_unused: u64,
}

/// A cache and heads.
#[derive(Clone, Copy)]
struct Heads {
    head_dim: u64,
    head_dim_v: u64,
    n_heads: u64,
    n_kv_heads: u64,
    cache: DType,
}

const HEADS: Heads = Heads { head_dim: 32, head_dim_v: 32, n_heads: 4, n_kv_heads: 2, cache: DType::F32 };

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (n_heads, n_kv_heads) in [(1, 1), (4, 4), (8, 2), (6, 1), (6, 3)] {
        for cache in [DType::F32, DType::F16, DType::Q8_0] {
            let heads = Heads { n_heads, n_kv_heads, cache, ..HEADS };
            let name = format!("{n_heads} heads on {n_kv_heads} KV heads, {cache} cache");
            cases.push(case(name, heads, &mixed(), AttentionParams::default(), false));
        }
    }
    for (name, step) in [
        ("one decode", Step { block_size: 4, n_blocks: 3, seqs: vec![(vec![2, 0], 7, 1)], n_unused: 0 }),
        (
            "first token of all",
            Step { block_size: 16, n_blocks: 2, seqs: vec![(vec![1], 1, 1)], n_unused: 0 },
        ),
        (
            "whole prompt",
            Step { block_size: 8, n_blocks: 5, seqs: vec![(vec![4, 1, 3], 20, 20)], n_unused: 0 },
        ),
        ("later chunk", Step { block_size: 8, n_blocks: 5, seqs: vec![(vec![4, 1, 3], 21, 6)], n_unused: 0 }),
        (
            "blocks of one",
            Step { block_size: 1, n_blocks: 6, seqs: vec![(vec![5, 0, 3, 1], 4, 2)], n_unused: 0 },
        ),
        ("tokens of no sequence", Step { n_unused: 3, ..mixed() }),
        ("no sequence at all", Step { block_size: 4, n_blocks: 2, seqs: vec![(vec![0], 0, 0)], n_unused: 2 }),
    ] {
        cases.push(case(name, HEADS, &step, AttentionParams::default(), false));
    }
    for wild in
        [[0, 4, 0, 4, 9, 9], [-2, 3, 3, 100, 5, 2], [7, 0, 8, 0, i32::MAX, 9], [i32::MIN, -1, 0, 0, 2, 1]]
    {
        let name = format!("query starts {wild:?}");
        let mut case = case(name, HEADS, &mixed(), AttentionParams::default(), false);
        // They are the last of the operands.
        case.ints.last_mut().expect("query starts").1 = wild.to_vec();
        cases.push(case);
    }
    for (name, p) in [
        ("window of 1", AttentionParams { window: 1, ..Default::default() }),
        ("window of 3", AttentionParams { window: 3, ..Default::default() }),
        ("window wider than all", AttentionParams { window: 4096, ..Default::default() }),
        ("soft cap", AttentionParams { softcap: 1.5, ..Default::default() }),
        ("soft cap and window", AttentionParams { softcap: 50.0, window: 5, ..Default::default() }),
        ("ALiBi", AttentionParams { max_bias: 8.0, ..Default::default() }),
    ] {
        cases.push(case(name, HEADS, &mixed(), p, false));
        cases.push(case(format!("{name}, with sinks"), HEADS, &mixed(), p, true));
    }
    let six = Heads { n_heads: 6, n_kv_heads: 6, ..HEADS };
    let alibi = AttentionParams { max_bias: 8.0, ..Default::default() };
    cases.push(case("ALiBi of heads that are no power of two", six, &mixed(), alibi, false));
    for (head_dim, head_dim_v) in [(1, 1), (7, 5), (80, 80), (192, 128), (256, 256)] {
        let heads = Heads { head_dim, head_dim_v, ..HEADS };
        let name = format!("head dims {head_dim} and {head_dim_v}");
        cases.push(case(name, heads, &mixed(), AttentionParams::default(), false));
    }
    cases
}

/// A decode, a chunk of a prefill, a row not in use, a whole prompt.
fn mixed() -> Step {
    let seqs =
        vec![(vec![5, 0, 2], 9, 1), (vec![1, 4], 7, 3), (vec![], 0, 0), (vec![7, 6], 5, 5), (vec![], 0, 0)];
    Step { block_size: 4, n_blocks: 8, seqs, n_unused: 0 }
}

/// Default numbers in `p` stand for the usual ones.
fn case(name: impl Into<String>, h: Heads, step: &Step, p: AttentionParams, with_sinks: bool) -> Case {
    let nmse = if h.cache == DType::F32 { 1e-7 } else { 5e-4 };
    let scale = (h.head_dim as f32).sqrt().recip();
    let p = AttentionParams { n_kv_heads: h.n_kv_heads as u32, block_size: step.block_size, scale, ..p };
    Case::new(name, |g, ints| {
        let n_tokens = step.seqs.iter().map(|s| s.2 as u64).sum::<u64>() + step.n_unused;
        let n_slots = step.n_blocks * step.block_size as u64;
        // A part of a fused projection: rows with gaps between tokens.
        let fused = g.input("q", DType::F32, &[h.head_dim * h.n_heads + 16, n_tokens]);
        let part = g.slice(fused, 0, 16, h.head_dim * h.n_heads);
        let q = g.split_heads(part, h.n_heads);
        let k = g.state("k_cache", h.cache, &[h.head_dim * h.n_kv_heads, n_slots], Role::KCache);
        let v = g.state("v_cache", h.cache, &[h.head_dim_v * h.n_kv_heads, n_slots], Role::VCache);
        let sinks = with_sinks.then(|| g.input("sinks", DType::F32, &[h.n_heads]));
        let paged = paged(g, ints, step);
        match sinks {
            Some(sinks) => g.attention_with_sinks(q, k, v, sinks, &paged, &p),
            None => g.attention(q, k, v, &paged, &p),
        };
    })
    .nmse(nmse)
}

fn paged(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, step: &Step) -> Paged {
    let n_seqs = step.seqs.len() as u64;
    let max_blocks = step.seqs.iter().map(|s| s.0.len()).max().unwrap_or(0).max(1);
    let block_table = g.input("block_table", DType::I32, &[max_blocks as u64, n_seqs]);
    let seq_lens = g.input("seq_lens", DType::I32, &[n_seqs]);
    let query_starts = g.input("query_starts", DType::I32, &[n_seqs + 1]);

    let row =
        |blocks: &Vec<i32>| (0..max_blocks).map(|i| blocks.get(i).copied().unwrap_or(0)).collect::<Vec<_>>();
    ints.push((block_table, step.seqs.iter().flat_map(|s| row(&s.0)).collect()));
    ints.push((seq_lens, step.seqs.iter().map(|s| s.1).collect()));
    let mut starts = vec![0];
    starts.extend(step.seqs.iter().scan(0, |at, s| {
        *at += s.2;
        Some(*at)
    }));
    ints.push((query_starts, starts));
    Paged { block_table, seq_lens, query_starts }
}
