//! Times `mul_mat` per weight format, and `attention`: GFLOP/s and GB/s of weights, best and median of some runs.
//!
//! `cargo run --release -p llmrt-cpu --example bench_kernels -- [threads] [isa] [formats,…|attention]`

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Bound, Plugin, Stream};
use llmrt_abi::{DType, op::AttentionParams};
use llmrt_cpu::simd::Isa;
use llmrt_graph::{Graph, Paged, Role};
use std::time::{Duration, Instant};

const FORMATS: [DType; 15] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let n_threads = args.first().map_or(2, |n| n.parse().expect("the first argument is a number of threads"));
    let isa = args.get(1).map_or(Isa::best().name(), String::as_str);
    let only = args.get(2).map(|s| s.to_ascii_uppercase());
    let wanted = |name: &str| only.as_ref().is_none_or(|o| o.split(',').any(|o| o == name));
    let plugin = Plugin::open(isa).expect("the instruction set is here");
    println!("{n_threads} threads, {isa}");
    println!("{:<8}{:>6}{:>6}{:>6}{:>12}{:>12}{:>9}", "format", "m", "k", "n", "GFLOP/s", "median", "GB/s");
    for dtype in FORMATS.into_iter().filter(|t| wanted(t.name())) {
        for (m, k) in [(4864, 896), (896, 4864), (4096, 4096)] {
            if k % dtype.block_elems() as u64 != 0 {
                continue;
            }
            for n in [1, 512] {
                mul_mat(&plugin, n_threads, dtype, m, k, n);
            }
        }
    }
    if wanted("ATTENTION") {
        for cache in [DType::F32, DType::F16, DType::Q8_0] {
            for (n_new, len) in [(1, 512), (1, 4096), (512, 512), (2048, 2048)] {
                attention(&plugin, n_threads, cache, n_new, len);
            }
        }
    }
}

fn mul_mat(plugin: &Plugin, n_threads: u32, dtype: DType, m: u64, k: u64, n: u64) {
    let bytes = dtype.row_bytes(k).expect("whole blocks") * m;
    // One column: so many matrices that none is in a cache.
    let copies = if n == 1 { (128 << 20) / bytes + 1 } else { 1 };
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[k, n]);
    for i in 0..copies {
        let w = g.weight(&format!("w{i}"), dtype, &[k, m], Role::Matrix);
        g.mul_mat(w, x);
    }
    let g = g.finish().expect("a valid graph");
    let (best, median) = time(plugin, n_threads, &g, &[]);
    let gflop = 2.0 * (m * k * n * copies) as f64 / 1e9;
    let gb = (bytes * copies) as f64 / 1e9;
    println!(
        "{:<8}{m:>6}{k:>6}{n:>6}{:>12.1}{:>12.1}{:>9.1}",
        dtype.name(),
        gflop / best,
        gflop / median,
        gb / best
    );
}

/// One sequence of `len` tokens, the last `n_new` of them queries; 14 heads of 64 on 2 KV heads.
fn attention(plugin: &Plugin, n_threads: u32, cache: DType, n_new: u64, len: u64) {
    let (head_dim, n_heads, n_kv_heads) = (64, 14, 2);
    let mut g = Graph::new();
    let q = g.input("q", DType::F32, &[head_dim, n_heads, n_new]);
    let n_blocks = len.div_ceil(16);
    let k = g.state("k", cache, &[head_dim * n_kv_heads, n_blocks * 16], Role::KCache);
    let v = g.state("v", cache, &[head_dim * n_kv_heads, n_blocks * 16], Role::VCache);
    let paged = Paged {
        block_table: g.input("block_table", DType::I32, &[n_blocks, 1]),
        seq_lens: g.input("seq_lens", DType::I32, &[1]),
        query_starts: g.input("query_starts", DType::I32, &[2]),
    };
    let p = AttentionParams { n_kv_heads: 2, block_size: 16, scale: 0.125, ..Default::default() };
    let ints = [
        (paged.block_table.0, (0..n_blocks as i32).collect::<Vec<_>>()),
        (paged.seq_lens.0, vec![len as i32]),
        (paged.query_starts.0, vec![0, n_new as i32]),
    ];
    let copies = if n_new == 1 { 64 } else { 1 };
    for _ in 0..copies {
        g.attention(q, k, v, &paged, &p);
    }
    let g = g.finish().expect("a valid graph");
    let (best, median) = time(plugin, n_threads, &g, &ints);
    let pairs = (0..n_new).map(|i| len - n_new + i + 1).sum::<u64>() * n_heads * copies;
    let gflop = 4.0 * (pairs * head_dim) as f64 / 1e9;
    println!(
        "attention {} cache, {n_new} queries, {len} keys: {:.1} GFLOP/s, median {:.1}, {:.1} us",
        cache.name(),
        gflop / best,
        gflop / median,
        best * 1e6 / copies as f64
    );
}

/// Seconds of a run: best and median.
fn time(plugin: &Plugin, n_threads: u32, g: &Graph, ints: &[(u32, Vec<i32>)]) -> (f64, f64) {
    let mut bound = Bound::new(plugin, g);
    for (i, def) in g.tensors.iter().enumerate().filter(|(_, def)| def.view.is_none()) {
        let bytes = match ints.iter().find(|(t, _)| *t as usize == i) {
            Some((_, ints)) => ints.iter().flat_map(|v| v.to_ne_bytes()).collect(),
            // Bytes that are small numbers in every format.
            None => (0..def.n_bytes()).map(|b| (b * 7 % 47) as u8).collect::<Vec<u8>>(),
        };
        bound.write(i, &bytes);
    }
    bound.supported().expect("the CPU runs it");
    let stream = Stream::new(plugin, n_threads);
    stream.compute(&bound).expect("it runs");
    let mut times = vec![];
    let began = Instant::now();
    while times.len() < 5 || (began.elapsed() < Duration::from_millis(600) && times.len() < 100) {
        let start = Instant::now();
        stream.compute(&bound).expect("it runs");
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}
