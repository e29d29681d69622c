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
    k: DType,
    v: DType,
}

const HEADS: Heads =
    Heads { head_dim: 32, head_dim_v: 32, n_heads: 4, n_kv_heads: 2, k: DType::F32, v: DType::F32 };

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    heads(&mut cases);
    caches(&mut cases);
    steps(&mut cases);
    scores(&mut cases);
    reaches(&mut cases);
    deep(&mut cases);
    latent(&mut cases);
    large_blocks(&mut cases);
    cases
}

/// Numbers of heads and their dims.
fn heads(cases: &mut Vec<Case>) {
    for (n_heads, n_kv_heads) in [(1, 1), (4, 4), (8, 2), (6, 1), (6, 3), (32, 4), (12, 12), (49, 1)] {
        for cache in [DType::F32, DType::F16, DType::BF16, DType::Q8_0] {
            let heads = Heads { n_heads, n_kv_heads, k: cache, v: cache, ..HEADS };
            let name = format!("{n_heads} heads on {n_kv_heads} KV heads, {cache} cache");
            cases.push(case(name, heads, &mixed(), AttentionParams::default(), false));
        }
    }
    let dims = [1, 7, 40, 64, 72, 80, 96, 112, 128, 192, 256].map(|dim| (dim, dim));
    for (head_dim, head_dim_v) in dims.into_iter().chain([(7, 5), (64, 72), (65, 67), (192, 128), (576, 512)])
    {
        for cache in [DType::F32, DType::F16] {
            let heads = Heads { head_dim, head_dim_v, k: cache, v: cache, ..HEADS };
            let name = format!("head dims {head_dim} and {head_dim_v}, {cache} cache");
            cases.push(case(name, heads, &mixed(), AttentionParams::default(), false));
        }
    }
}

/// Dtypes of the caches, alike and mixed.
fn caches(cases: &mut Vec<Case>) {
    use DType::*;
    let alike = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, F16, BF16].map(|t| (t, t));
    let mixed_types =
        [(Q8_0, Q4_0), (Q4_0, F16), (F16, F32), (F32, F16), (F16, Q4_0), (Q8_0, F16), (BF16, Q5_1)];
    for (k, v) in alike.into_iter().chain(mixed_types) {
        for (head_dim, n_heads, n_kv_heads) in [(32, 4, 2), (64, 8, 1), (128, 2, 2)] {
            let heads = Heads { head_dim, head_dim_v: head_dim, n_heads, n_kv_heads, k, v };
            for (name, step) in [("mixed step", mixed()), ("long prompt", long_prompt())] {
                let name = format!("K of {k} and V of {v}, {n_heads} heads of {head_dim}, {name}");
                cases.push(case(name, heads, &step, AttentionParams::default(), false));
            }
        }
    }
}

/// Sequences of a step and where their blocks are.
fn steps(cases: &mut Vec<Case>) {
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
        (
            "blocks of 3",
            Step { block_size: 3, n_blocks: 9, seqs: vec![(vec![8, 0, 3, 1], 11, 4)], n_unused: 0 },
        ),
        (
            "one block for all",
            Step { block_size: 100, n_blocks: 1, seqs: vec![(vec![0], 90, 17)], n_unused: 0 },
        ),
        ("long prompt", long_prompt()),
        ("many decodes", many_decodes(33)),
        (
            "blocks that are not there",
            Step {
                block_size: 4,
                n_blocks: 6,
                seqs: vec![(vec![5, -1, 2], 11, 3), (vec![1 << 20, 3], 7, 2)],
                n_unused: 0,
            },
        ),
        (
            "no block is there",
            Step { block_size: 4, n_blocks: 2, seqs: vec![(vec![-1, 9], 6, 2)], n_unused: 0 },
        ),
        ("tokens of no sequence", Step { n_unused: 3, ..mixed() }),
        ("no sequence at all", Step { block_size: 4, n_blocks: 2, seqs: vec![(vec![0], 0, 0)], n_unused: 2 }),
    ] {
        for (n_heads, n_kv_heads) in [(4, 2), (9, 3)] {
            for cache in [DType::F32, DType::F16] {
                let heads = Heads { n_heads, n_kv_heads, k: cache, v: cache, ..HEADS };
                let name = format!("{name}, {n_heads} heads on {n_kv_heads}, {cache} cache");
                cases.push(case(name, heads, &step, AttentionParams::default(), false));
            }
        }
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
}

/// Windows, caps, slopes and sinks.
fn scores(cases: &mut Vec<Case>) {
    for (name, p) in [
        ("plain", AttentionParams::default()),
        ("window of 1", AttentionParams { window: 1, ..Default::default() }),
        ("window of 3", AttentionParams { window: 3, ..Default::default() }),
        ("window of 17", AttentionParams { window: 17, ..Default::default() }),
        ("window wider than all", AttentionParams { window: 4096, ..Default::default() }),
        ("soft cap", AttentionParams { softcap: 1.5, ..Default::default() }),
        ("soft cap and window", AttentionParams { softcap: 50.0, window: 5, ..Default::default() }),
        ("ALiBi", AttentionParams { max_bias: 8.0, ..Default::default() }),
        ("ALiBi and window", AttentionParams { max_bias: 8.0, window: 6, ..Default::default() }),
        ("ALiBi and soft cap", AttentionParams { max_bias: 4.0, softcap: 2.0, ..Default::default() }),
        ("all at once", AttentionParams { max_bias: 4.0, softcap: 2.0, window: 4, ..Default::default() }),
    ] {
        for sinks in [false, true] {
            for (step_name, step) in [("mixed step", mixed()), ("long prompt", long_prompt())] {
                for (n_heads, n_kv_heads) in [(4, 2), (6, 6), (5, 1)] {
                    let heads = Heads { n_heads, n_kv_heads, ..HEADS };
                    let on = format!("{n_heads} heads on {n_kv_heads}, {step_name}");
                    cases.push(case(format!("{name}, sinks {sinks}, {on}"), heads, &step, p, sinks));
                }
            }
        }
    }
}

/// Queries that see later keys, and those of their chunk only.
fn reaches(cases: &mut Vec<Case>) {
    let all = AttentionParams { bidirectional: 1, ..Default::default() };
    let chunk = |chunk| AttentionParams { chunk, ..Default::default() };
    for (name, p) in [
        ("bidirectional", all),
        ("bidirectional, window of 1", AttentionParams { window: 1, ..all }),
        ("bidirectional, window of 4", AttentionParams { window: 4, ..all }),
        ("bidirectional, window of 31", AttentionParams { window: 31, ..all }),
        ("bidirectional, ALiBi", AttentionParams { max_bias: 8.0, ..all }),
        ("bidirectional, ALiBi, soft cap", AttentionParams { max_bias: 8.0, softcap: 2.0, ..all }),
        ("bidirectional, chunks of 16", AttentionParams { chunk: 16, ..all }),
        ("chunks of 1", chunk(1)),
        ("chunks of 4", chunk(4)),
        ("chunks of 24", chunk(24)),
        ("chunks of more than all", chunk(4096)),
        ("chunks of 24 and a window of 7", AttentionParams { window: 7, ..chunk(24) }),
    ] {
        for (step_name, step) in [("mixed step", mixed()), ("long prompt", long_prompt())] {
            for (n_heads, n_kv_heads) in [(4, 2), (5, 1)] {
                for cache in [DType::F32, DType::F16] {
                    let heads = Heads { n_heads, n_kv_heads, k: cache, v: cache, ..HEADS };
                    let on = format!("{n_heads} heads on {n_kv_heads}, {cache} cache, {step_name}");
                    cases.push(case(format!("{name}, {on}"), heads, &step, p, false));
                }
            }
        }
    }
}

/// Texts so long that kernels do them part by part.
fn deep(cases: &mut Vec<Case>) {
    let all = AttentionParams { max_bias: 4.0, softcap: 2.0, ..Default::default() };
    for (name, p, sinks) in [
        ("plain", AttentionParams::default(), false),
        ("window of 600", AttentionParams { window: 600, ..Default::default() }, true),
        ("bidirectional", AttentionParams { bidirectional: 1, ..Default::default() }, false),
        ("chunks of 700", AttentionParams { chunk: 700, ..Default::default() }, false),
        ("ALiBi, soft cap, sinks", all, true),
    ] {
        for cache in [DType::F32, DType::F16] {
            let heads = Heads { k: cache, v: cache, ..HEADS };
            cases.push(case(
                format!("1100 positions, {name}, {cache} cache"),
                heads,
                &long_texts(),
                p,
                sinks,
            ));
        }
    }
}

/// V rows are a part of the K rows, all heads share them: multi-head latent attention.
fn latent(cases: &mut Vec<Case>) {
    let sizes = [
        (1, 24, 16, DType::F32),
        (4, 48, 32, DType::F32),
        (16, 96, 64, DType::F16),
        (2, 576, 512, DType::BF16),
    ];
    for (n_heads, k_row, v_row, cache) in sizes.into_iter().chain([(3, 96, 64, DType::Q8_0)]) {
        for (of, step) in [("mixed chunks", mixed()), ("a long prompt", long_prompt())] {
            let name = format!("V is {v_row} elements of K rows of {k_row}, {n_heads} heads, {cache}, {of}");
            let nmse = if cache == DType::F32 { 1e-7 } else { 5e-4 };
            let p = AttentionParams {
                n_kv_heads: 1,
                block_size: step.block_size,
                scale: 0.1,
                ..Default::default()
            };
            cases.push(
                Case::new(name, |g, ints| {
                    let n_tokens = step.seqs.iter().map(|s| s.2 as u64).sum::<u64>() + step.n_unused;
                    let q = g.input("q", DType::F32, &[k_row, n_heads, n_tokens]);
                    let k = g.state(
                        "k_cache",
                        cache,
                        &[k_row, step.n_blocks * step.block_size as u64],
                        Role::KCache,
                    );
                    let v = g.slice(k, 0, 0, v_row);
                    let paged = paged(g, ints, &step);
                    g.attention(q, k, v, &paged, &p);
                })
                .nmse(nmse),
            );
        }
    }
}

/// Blocks of the size that fused kernels read where they are: a later chunk beside a whole prompt and tokens of no sequence.
fn large_blocks(cases: &mut Vec<Case>) {
    let step = Step {
        block_size: 128,
        n_blocks: 6,
        seqs: vec![(vec![5, 0, 3], 290, 21), (vec![4], 60, 60)],
        n_unused: 1,
    };
    for (name, p, sinks) in [
        ("plain", AttentionParams::default(), false),
        ("window of 50", AttentionParams { window: 50, ..Default::default() }, false),
        ("soft cap", AttentionParams { softcap: 1.5, ..Default::default() }, false),
        ("ALiBi", AttentionParams { max_bias: 8.0, ..Default::default() }, false),
        ("sinks", AttentionParams::default(), true),
        ("bidirectional", AttentionParams { bidirectional: 1, ..Default::default() }, false),
        ("chunks of 100", AttentionParams { chunk: 100, ..Default::default() }, false),
    ] {
        for cache in [DType::F16, DType::BF16] {
            let heads = Heads { k: cache, v: cache, ..HEADS };
            cases.push(case(format!("blocks of 128, {name}, {cache} cache"), heads, &step, p, sinks));
        }
    }
}

/// The last tokens of two texts, one by one and as a chunk.
fn long_texts() -> Step {
    let blocks = |first: i32, n: i32| (0..n).map(|i| first + (i * 7) % n).collect::<Vec<_>>();
    let seqs = vec![(blocks(0, 36), 1100, 1), (blocks(36, 17), 530, 19)];
    Step { block_size: 32, n_blocks: 53, seqs, n_unused: 0 }
}

/// Two prompts over many tiles of keys, one in its second chunk.
fn long_prompt() -> Step {
    let seqs = vec![(vec![9, 0, 4, 2, 7], 75, 40), (vec![1, 5, 3], 37, 37)];
    Step { block_size: 16, n_blocks: 10, seqs, n_unused: 0 }
}

/// Decodes of `n` sequences of different lengths, whose blocks are not adjacent.
fn many_decodes(n: i32) -> Step {
    let seqs = (0..n).map(|i| (vec![i, 2 * n - 1 - i], 1 + i % 8, 1)).collect();
    Step { block_size: 4, n_blocks: 2 * n as u64, seqs, n_unused: 0 }
}

/// A decode, a chunk of a prefill, a row not in use, a whole prompt.
fn mixed() -> Step {
    let seqs =
        vec![(vec![5, 0, 2], 9, 1), (vec![1, 4], 7, 3), (vec![], 0, 0), (vec![7, 6], 5, 5), (vec![], 0, 0)];
    Step { block_size: 4, n_blocks: 8, seqs, n_unused: 0 }
}

/// Default numbers in `p` stand for the usual ones.
fn case(name: impl Into<String>, h: Heads, step: &Step, p: AttentionParams, with_sinks: bool) -> Case {
    let nmse = if (h.k, h.v) == (DType::F32, DType::F32) { 1e-7 } else { 5e-4 };
    let scale = (h.head_dim as f32).sqrt().recip();
    let p = AttentionParams { n_kv_heads: h.n_kv_heads as u32, block_size: step.block_size, scale, ..p };
    Case::new(name, |g, ints| {
        let n_tokens = step.seqs.iter().map(|s| s.2 as u64).sum::<u64>() + step.n_unused;
        let n_slots = step.n_blocks * step.block_size as u64;
        // A part of a fused projection: rows with gaps between tokens.
        let fused = g.input("q", DType::F32, &[h.head_dim * h.n_heads + 16, n_tokens]);
        let part = g.slice(fused, 0, 16, h.head_dim * h.n_heads);
        let q = g.split_heads(part, h.n_heads);
        let k = g.state("k_cache", h.k, &[h.head_dim * h.n_kv_heads, n_slots], Role::KCache);
        let v = g.state("v_cache", h.v, &[h.head_dim_v * h.n_kv_heads, n_slots], Role::VCache);
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
