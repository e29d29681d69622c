//! Products that follow each other with the same activations share what is prepared of them, and each gives the bits that it
//! gives alone.

mod common;

use common::{Plugin, worth_a_team};
use llmrt_abi::{DType, op::AttentionParams};
use llmrt_cpu::simd::Isa;
use llmrt_graph::ops::{case::Case, value::Value};
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Paged, Role, Tensor};

const K: u64 = 512;
/// Columns that the team prepares together.
const N: u64 = 100;
/// Columns that each thread prepares for itself.
const FEW: u64 = 3;
const M: u64 = 40;

/// Weights of products in a row, and their rows.
type Products<'a> = &'a [(DType, u64)];

#[test]
fn products_in_a_row_give_the_bits_of_each_alone() {
    use DType::{BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q6_K, Q8_0};
    check(&[(Q4_0, M), (Q4_0, M), (Q4_1, M), (Q4_0, M)]);
    check(&[(F16, M), (F16, M), (Q8_0, M), (F16, M), (Q8_0, M)]);
    check(&[(Q6_K, M), (Q5_0, M), (Q6_K, M), (Q6_K, M)]);
    check(&[(F32, M), (F16, M), (BF16, M), (BF16, M), (F16, M), (F32, M)]);
}

#[test]
fn a_product_without_rows_prepares_nothing_for_the_next() {
    for dtype in [DType::Q8_0, DType::F16] {
        check(&[(dtype, 0), (dtype, M)]);
        check(&[(DType::Q4_1, M), (dtype, 0), (dtype, M)]);
    }
}

#[test]
fn products_of_experts_leave_nothing_wrong_to_the_next() {
    let plugin = Plugin::open(Isa::best().name()).unwrap();
    for (dtype, n) in [(DType::F16, FEW), (DType::F16, N), (DType::Q8_0, FEW), (DType::Q8_0, N)] {
        let case = Case::new("a product, one of experts, and the first again", |g, ints| {
            let x = g.input("x", DType::F32, &[K, 1, n]);
            let w = g.weight("w", dtype, &[K, M], Role::Matrix);
            let experts = g.weight("experts", dtype, &[K, M, 4], Role::Experts);
            let ids = g.input("ids", DType::I32, &[2, n]);
            ints.push((ids, (0..2 * n as i32).map(|i| i * 7 % 4).collect()));
            g.mul_mat(w, x);
            g.mul_mat_id(experts, x, ids);
            g.mul_mat(w, x);
            g.mul_mat_id(experts, x, ids);
            worth_a_team(g);
        });
        for (n_threads, results) in results_by_threads(&plugin, &case) {
            assert!(results[0] == results[2], "{dtype}, {n} columns, {n_threads} threads");
            assert!(results[1] == results[3], "{dtype}, {n} columns, {n_threads} threads");
        }
    }
}

#[test]
fn attention_that_is_cut_by_depth_leaves_nothing_wrong_to_the_next() {
    const KEYS: u64 = 1104;
    let plugin = Plugin::open(Isa::best().name()).unwrap();
    for (dtype, k) in [(DType::Q8_0, 4096), (DType::Q8_0, 512), (DType::F16, 4096)] {
        let case =
            Case::new("a product, attention in the team's memory, and the product again", |g, ints| {
                let x = g.input("x", DType::F32, &[k, 8]);
                let w = g.weight("w", dtype, &[k, M], Role::Matrix);
                let q = g.input("q", DType::F32, &[32, 6, 8]);
                let cache = |g: &mut Graph, name, role| g.state(name, DType::F16, &[64, KEYS], role);
                let (keys, values) = (cache(g, "k", Role::KCache), cache(g, "v", Role::VCache));
                let paged = Paged {
                    block_table: g.input("block_table", DType::I32, &[KEYS / 16, 1]),
                    seq_lens: g.input("seq_lens", DType::I32, &[1]),
                    query_starts: g.input("query_starts", DType::I32, &[2]),
                };
                ints.push((paged.block_table, (0..KEYS as i32 / 16).collect()));
                ints.push((paged.seq_lens, vec![KEYS as i32]));
                ints.push((paged.query_starts, vec![0, 8]));
                let (n_kv_heads, block_size, scale) = (2, 16, 0.2);
                let p = AttentionParams { n_kv_heads, block_size, scale, ..Default::default() };
                g.mul_mat(w, x);
                g.attention(q, keys, values, &paged, &p);
                g.mul_mat(w, x);
                worth_a_team(g);
            });
        let mut attention = None;
        for (n_threads, results) in results_by_threads(&plugin, &case) {
            assert!(results[0] == results[2], "{dtype}, {k} rows, {n_threads} threads");
            let expected = attention.get_or_insert_with(|| results[1].clone());
            assert!(*expected == results[1], "{dtype}, {k} rows, {n_threads} threads");
        }
    }
}

#[test]
fn activations_that_are_overwritten_are_prepared_again() {
    let plugin = Plugin::open(Isa::best().name()).unwrap();
    for (dtype, n) in [(DType::Q4_0, N), (DType::Q4_0, FEW), (DType::F16, N), (DType::F16, FEW)] {
        let case = Case::new("x, its product, another x in its place, and that one's product", |g, ints| {
            let x = g.state("x", DType::F32, &[K, n], Role::KCache);
            let w = g.weight("w", dtype, &[K, M], Role::Matrix);
            let rows = g.input("rows", DType::F32, &[K, n]);
            let at = g.input("at", DType::I32, &[n]);
            ints.push((at, (0..n as i32).collect()));
            g.mul_mat(w, x);
            g.set_rows(x, rows, at);
            g.mul_mat(w, x);
            g.mul_mat(w, rows);
            worth_a_team(g);
        });
        for (n_threads, results) in results_by_threads(&plugin, &case) {
            assert!(results[2] == results[3], "{dtype}, {n} columns, {n_threads} threads");
            assert!(results[0] != results[3], "{dtype}, {n} columns, {n_threads} threads");
        }
    }
}

/// The results of a case's nodes, by number of threads.
fn results_by_threads(plugin: &Plugin, case: &Case) -> Vec<(u32, Vec<Vec<u8>>)> {
    let memory = case.values(5).unwrap();
    let run = |n_threads| {
        let all = plugin.run(&case.graph, &memory, n_threads).unwrap();
        (n_threads, case.graph.nodes.iter().map(|node| all[node.dst.0 as usize].clone()).collect())
    };
    [1, 2, 3].map(run).into()
}

/// Compares products that share x with products that each have a copy of it.
fn check(products: Products<'_>) {
    for isa in Isa::available() {
        let plugin = Plugin::open(isa.name()).unwrap();
        for n_columns in [N, FEW, 1] {
            let expected = run(&plugin, products, n_columns, 1, false);
            for n_threads in [1, 2, 3] {
                let same = run(&plugin, products, n_columns, n_threads, true) == expected;
                assert!(same, "{products:?} · {n_columns}, {}, {n_threads} threads", isa.name());
            }
        }
    }
}

fn run(
    plugin: &Plugin,
    products: Products<'_>,
    n_columns: u64,
    n_threads: u32,
    is_shared: bool,
) -> Vec<Vec<u8>> {
    let mut g = Graph::new();
    let mut memory = Memory::new();
    let mut x = None;
    let mut inputs = Vec::new();
    let mut results = Vec::new();
    for (i, &(dtype, m)) in products.iter().enumerate() {
        let w = g.weight(&format!("w{i}"), dtype, &[K, m], Role::Matrix);
        memory.set_bytes(w, weights(dtype, m));
        let own =
            x.filter(|_| is_shared).unwrap_or_else(|| g.input(&format!("x{i}"), DType::F32, &[K, n_columns]));
        x = Some(own);
        inputs.push(own);
        results.push(g.mul_mat(w, own));
    }
    worth_a_team(&mut g);
    let g = g.finish().unwrap();
    let numbers: Vec<f32> = (0..K * n_columns).map(|i| (i as f32 * 0.37).sin()).collect();
    for x in inputs {
        memory.set(&g, x, &Value::f32([K, n_columns, 1, 1], numbers.clone())).unwrap();
    }
    let all = plugin.run(&g, &memory, n_threads).unwrap();
    results.into_iter().map(|y| all[y.0 as usize].clone()).collect()
}

fn weights(dtype: DType, m: u64) -> Vec<u8> {
    if m == 0 {
        return Vec::new();
    }
    let case = Case::new("weights", |g, _| {
        let w = g.weight("w", dtype, &[K, m], Role::Matrix);
        let x = g.input("x", DType::F32, &[K, 1]);
        g.mul_mat(w, x);
    });
    case.values(11).unwrap().bytes(Tensor(0)).unwrap().to_vec()
}
