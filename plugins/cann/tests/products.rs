//! Products of several 16-bit matrices on simulated cards: F32 results on every release, though before 9.1 the operator for
//! several rounds them. Nothing here shows what a real card does.

mod common;
#[path = "common/placed.rs"]
mod placed;

use common::Machine;
use llmrt_abi::{DType, op::AttentionParams};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Paged, Role};
use placed::run;

const PAIRS: [(&str, &str); 6] = [
    ("8.0", "Ascend910B3"),
    ("8.5", "Ascend910B3"),
    ("8.5", "Ascend910_9391"),
    ("9.0", "Ascend910B3"),
    ("9.1", "Ascend910B3"),
    ("8.5", "Ascend310P3"),
];

/// Matrices [k, m] of two KV heads, each for two of x; results are beyond F16.
fn matrices(dtype: DType, [k, m, n]: [u64; 3]) -> Case {
    Case::new(format!("two {dtype} matrices [{k}, {m}]"), |g, _| {
        let w = g.weight("w", dtype, &[k, m, 2], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n, 4]);
        let x = g.scale(x, 20_000.0);
        g.mul_mat(w, x);
    })
}

/// Scores before their scale are beyond F16; the cap keeps attention from the vendor's operator for it.
fn capped_attention(cache: DType) -> Case {
    Case::new(format!("attention with a soft cap, {cache}"), |g, ints| {
        let q = g.input("q", DType::F32, &[32, 4, 3]);
        let q = g.scale(q, 60_000.0);
        let k = g.state("k", cache, &[64, 8 * 16], Role::KCache);
        let v = g.state("v", cache, &[64, 8 * 16], Role::VCache);
        let paged = Paged {
            block_table: g.input("block_table", DType::I32, &[4, 2]),
            seq_lens: g.input("seq_lens", DType::I32, &[2]),
            query_starts: g.input("query_starts", DType::I32, &[3]),
        };
        ints.push((paged.block_table, (0..8).collect()));
        ints.push((paged.seq_lens, vec![60, 33]));
        ints.push((paged.query_starts, vec![0, 2, 3]));
        let p = AttentionParams {
            n_kv_heads: 2,
            block_size: 16,
            scale: 1e-4,
            softcap: 30.0,
            ..Default::default()
        };
        g.attention(q, k, v, &paged, &p);
    })
}

/// One of few experts is chosen, so that its matrix is gathered.
fn gathered_experts(dtype: DType) -> Case {
    Case::new(format!("two of 16 {dtype} experts"), |g, ints| {
        let w = g.weight("w", dtype, &[64, 6, 16], Role::Experts);
        let x = g.input("x", DType::F32, &[64, 1, 2]);
        let ids = g.input("ids", DType::I32, &[2, 2]);
        ints.push((ids, vec![15, 0, 3, 7]));
        g.mul_mat_id(w, x, ids);
    })
}

/// Rows are rounded to F16 for F16 matrices, and to 16 bits for BF16 ones; results rounded to BF16 have errors of 1e-6, and
/// those beyond F16 are lost.
#[test]
fn products_of_several_matrices_have_f32_results() {
    for (release, soc) in PAIRS {
        let m = Machine::of(release, soc, "queue=now,memory=1g");
        let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
        for dtype in [DType::F16, DType::BF16] {
            let limit = if dtype == DType::F16 { 3e-7 } else { 1e-8 };
            for case in [
                matrices(dtype, [64, 24, 3]),
                matrices(dtype, [1024, 512, 1]),
                capped_attention(dtype),
                gathered_experts(dtype),
            ] {
                // A 310P has no BF16, and its experts are not the matter here.
                let Some(error) = run(&card, &stream, &case).unwrap() else { continue };
                assert!(error <= limit, "{release} {soc}: {}: {error:e}", case.name);
            }
        }
        assert_eq!(m.reports(), [""; 0], "{release} {soc}");
    }
}

/// Small matrices become F32 for one operator; large ones, which would be read three times for that, are multiplied one by one.
#[test]
fn large_matrices_are_read_once_and_small_ones_take_one_operator() {
    let names = ["aclnnMm", "aclnnMatmul"];
    let (small, large) = ([64, 24, 3], [1024, 512, 1]);
    for (release, dims, expected) in
        [("9.0", small, [0, 1]), ("9.0", large, [4, 0]), ("9.1", small, [0, 1]), ("9.1", large, [0, 1])]
    {
        let m = Machine::of(release, "Ascend910B3", "queue=now,memory=1g");
        let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
        for dtype in [DType::F16, DType::BF16] {
            let before = names.map(|name| m.count(name));
            run(&card, &stream, &matrices(dtype, dims)).unwrap().unwrap();
            let after = names.map(|name| m.count(name));
            assert_eq!([0, 1].map(|i| after[i] - before[i]), expected, "{release} {dtype} {dims:?}");
        }
    }
}
