//! The bits of a result depend neither on the instruction set, nor on threads, nor on what else is in the batch.

mod common;

use common::{Plugin, worth_a_team};
use llmrt_abi::{DType, op::AttentionParams};
use llmrt_cpu::simd::Isa;
use llmrt_graph::ops::{case::Case, value::Value};
use llmrt_graph::quant::COMMON;
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Paged, Pick, Role, Tensor};

/// More than one chunk of groups, and no whole number of panels, tiles or vectors.
const K: u64 = 2304;
const M: u64 = 37;
const N: usize = 29;

#[test]
fn one_column_gives_the_bits_of_many_columns_on_any_threads_and_instruction_set_sealed_or_not() {
    for dtype in COMMON {
        let (w, x) = operands(dtype, M);
        let mut expected: Option<Vec<u8>> = None;
        for isa in Isa::available() {
            let plugin = Plugin::open(isa.name()).unwrap();
            for sealed in [false, true] {
                for (columns, n_threads) in [(N, 1), (N, 2), (N, 3), (13, 2), (5, 1), (2, 2), (1, 1), (1, 3)]
                {
                    let y: Vec<u8> = x
                        .chunks(columns * K as usize)
                        .flat_map(|x| product(&plugin, dtype, &w, x, n_threads, sealed))
                        .collect();
                    let same = expected.get_or_insert_with(|| y.clone()) == &y;
                    let how = if sealed { "sealed" } else { "as in the file" };
                    let what = format!("{dtype} {how}, {}", isa.name());
                    assert!(same, "{what}, {columns} columns at a time, {n_threads} threads");
                }
            }
        }
    }
}

#[test]
fn more_columns_than_stay_in_the_cache_give_the_bits_of_few() {
    let times = 9; // 261 columns; 256 are at work at a time
    for dtype in COMMON {
        let (w, x) = operands(dtype, M);
        let plugin = Plugin::open(Isa::best().name()).unwrap();
        let few = product(&plugin, dtype, &w, &x, 2, true);
        let many = product(&plugin, dtype, &w, &x.repeat(times), 2, true);
        assert!(many == few.repeat(times), "{dtype}");
    }
}

#[test]
fn rows_of_a_large_matrix_have_the_bits_that_they_have_in_a_small_one() {
    let m = 300; // pieces of three panels, whose sums are kept while other stretches of k are at work
    for dtype in COMMON {
        let (w, x) = operands(dtype, m);
        for isa in Isa::available() {
            let plugin = Plugin::open(isa.name()).unwrap();
            let large = product(&plugin, dtype, &w, &x, 1, true);
            let panel = 16 * dtype.row_bytes(K).unwrap() as usize;
            // The first pieces, and the last panel, which is not full.
            for (i, w) in w.chunks(panel).enumerate().filter(|(i, _)| *i < 4 || *i == 18) {
                let small = product(&plugin, dtype, w, &x, 1, true);
                let columns = large.chunks(4 * m as usize).flat_map(|y| y.chunks(64).nth(i).unwrap());
                assert!(columns.eq(&small), "{dtype}, {}, panel {i}", isa.name());
            }
        }
    }
}

/// Whether a result of values of a size is as it must be.
type Check = fn(f32) -> bool;

/// Activations that have no inverse of their scale, or are no numbers at all.
#[test]
fn activations_of_any_size_give_the_same_bits_on_any_instruction_set() {
    let finite: Check = |y| y.is_finite();
    let nan: Check = f32::is_nan;
    let values: [(&str, f32, Check); 7] = [
        ("tiny", 1e-37, finite),
        ("least", f32::from_bits(1), finite),
        ("large", f32::MAX, |_| true),
        ("zero", 0.0, finite),
        ("NaN", f32::NAN, nan),
        ("infinity", f32::INFINITY, nan),
        ("-NaN", f32::from_bits(!0), nan),
    ];
    for dtype in [DType::Q4_0, DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::IQ4_NL] {
        check_odd_activations(dtype, &values);
    }
}

/// Numbers below 2⁻¹²⁶ become zeros; products that come to less are left out, of which instruction sets differ.
#[test]
fn activations_of_bf16_weights_may_have_any_size_too() {
    let (finite, nan, not_finite): (Check, Check, Check) =
        (|y| y.is_finite(), f32::is_nan, |y| !y.is_finite());
    let values: [(&str, f32, Check); 6] = [
        ("least", f32::from_bits(1), finite),
        ("zero", 0.0, finite),
        ("NaN", f32::NAN, nan),
        ("-NaN", f32::from_bits(!0), nan),
        ("large", f32::MAX, not_finite),
        ("infinity", f32::INFINITY, not_finite),
    ];
    check_odd_activations(DType::BF16, &values);
}

/// Groups of one value, in a column for each, among usual ones: every result of such a column is as it must be, and the others do not
/// change.
fn check_odd_activations(dtype: DType, values: &[(&str, f32, Check)]) {
    let (w, usual) = operands(dtype, M);
    let mut x = usual.clone();
    for ((_, value, _), x) in values.iter().zip(x.chunks_mut(K as usize)) {
        x[..32].fill(*value);
    }
    let mut expected = None;
    for isa in Isa::available() {
        let plugin = Plugin::open(isa.name()).unwrap();
        let y = product(&plugin, dtype, &w, &x, 1, true);
        let (odd, others) = y.split_at(4 * M as usize * values.len());
        let odd: Vec<f32> = odd.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        for ((name, _, as_it_must), y) in values.iter().zip(odd.chunks(M as usize)) {
            assert!(y.iter().all(|y| as_it_must(*y)), "{name}, {dtype}, {}: {y:?}", isa.name());
        }
        assert!(product(&plugin, dtype, &w, &usual, 1, true).ends_with(others), "{dtype}, {}", isa.name());
        let bits: Vec<u32> = odd.iter().map(|y| if y.is_nan() { 0 } else { y.to_bits() }).collect();
        assert_eq!(*expected.get_or_insert(bits.clone()), bits, "{dtype}, {}", isa.name());
    }
}

#[test]
fn activations_are_rounded_to_8_bits_for_quantised_weights_and_to_bf16_for_bf16_and_nothing_else_is_lost() {
    for dtype in COMMON {
        let (w, x) = operands(dtype, M);
        let plugin = Plugin::open(Isa::best().name()).unwrap();
        let y = product(&plugin, dtype, &w, &x, 2, true);
        let y: Vec<f32> = y.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let weights = llmrt_graph::quant::dequantise(dtype, &w);
        let rounded: Vec<f64> = match dtype {
            DType::BF16 => x.iter().map(|v| rounded_to_bf16(*v)).collect(),
            _ if dtype.is_quantised() => x.chunks(32).flat_map(rounded_to_8_bits).collect(),
            _ => x.iter().map(|v| *v as f64).collect(),
        };
        let twin = rounded.chunks(K as usize).flat_map(|x| {
            weights.chunks(K as usize).map(move |w| w.iter().zip(x).map(|(w, x)| *w as f64 * x).sum::<f64>())
        });
        let (mut error, mut size) = (0.0, 0.0);
        for (y, twin) in y.iter().zip(twin) {
            error += (*y as f64 - twin).powi(2);
            size += twin.powi(2);
        }
        assert!(error / size < 1e-12, "{dtype}: NMSE {:e}", error / size);
    }
}

fn rounded_to_8_bits(x: &[f32]) -> Vec<f64> {
    let largest = x.iter().fold(0f32, |a, v| a.max(v.abs()));
    x.iter().map(|v| (v * (127.0 / largest)).round_ties_even() as f64 * (largest / 127.0) as f64).collect()
}

fn rounded_to_bf16(v: f32) -> f64 {
    let unit = 2f64.powi((v.to_bits() >> 23 & 255) as i32 - 127 - 7);
    (v as f64 / unit).round_ties_even() * unit
}

/// Weights as bytes, activations.
fn operands(dtype: DType, m: u64) -> (Vec<u8>, Vec<f32>) {
    operands_of(dtype, K, m)
}

/// The same of rows of `k` elements.
fn operands_of(dtype: DType, k: u64, m: u64) -> (Vec<u8>, Vec<f32>) {
    let case = Case::new("operands", |g, _| {
        g.weight("w", dtype, &[k, m], Role::Matrix);
        g.input("x", DType::F32, &[k, N as u64]);
    });
    let memory = case.values(11).unwrap();
    let w = memory.bytes(Tensor(0)).unwrap().to_vec();
    (w, memory.get(&case.graph, Tensor(1)).unwrap().floats().to_vec())
}

fn product(plugin: &Plugin, dtype: DType, w: &[u8], x: &[f32], n_threads: u32, sealed: bool) -> Vec<u8> {
    product_of(plugin, (dtype, Role::Matrix, K), w, x, n_threads, sealed, |g, w, x| g.mul_mat(w, x))
}

fn product_of(
    plugin: &Plugin,
    (dtype, role, k): (DType, Role, u64),
    w: &[u8],
    x: &[f32],
    n_threads: u32,
    sealed: bool,
    op: impl Fn(&mut Graph, Tensor, Tensor) -> Tensor,
) -> Vec<u8> {
    let mut g = Graph::new();
    let (m, n) = (w.len() as u64 / dtype.row_bytes(k).unwrap(), x.len() as u64 / k);
    let weight = g.weight("w", dtype, &[k, m], role);
    let input = g.input("x", DType::F32, &[k, n]);
    let y = op(&mut g, weight, input);
    if n_threads > 1 {
        worth_a_team(&mut g);
    }
    let g = g.finish().unwrap();
    let mut memory = Memory::new();
    memory.set_bytes(weight, w.to_vec());
    memory.set(&g, input, &Value::f32([k, n, 1, 1], x.to_vec())).unwrap();
    let run = if sealed { Plugin::run_sealed } else { Plugin::run };
    let mut all = run(plugin, &g, &memory, n_threads).unwrap();
    assert!(all[weight.0 as usize] == w, "{dtype}: the weight reads back otherwise");
    all.swap_remove(y.0 as usize)
}

/// Of which some groups of 32 have none but zeros, and one column has no zero.
#[test]
fn matrices_by_columns_give_the_bits_of_those_in_the_file() {
    // Whole panels, and whole strips of every format.
    for (dtype, m) in COMMON.into_iter().flat_map(|dtype| [(dtype, 176), (dtype, 1024)]) {
        let (w, mut x) = operands(dtype, m);
        for (i, x) in x.iter_mut().enumerate().skip(K as usize) {
            let is_zero = i % 11 != 3 && i % 7 != 2 || i / 32 % 5 == 1;
            *x = if is_zero { 0.0 } else { *x };
        }
        let expected = product(&Plugin::open("scalar").unwrap(), dtype, &w, &x, 1, false);
        for isa in Isa::available() {
            let plugin = Plugin::open(isa.name()).unwrap();
            let few = [(N, 3), (13, 2), (8, 1), (1, 2)];
            let all = [(N, 1), (4, 2), (3, 2), (1, 1), (1, 3)].into_iter().filter(|_| m < 1024);
            for (columns, n_threads) in few.into_iter().chain(all) {
                let of = |x| {
                    let kind = (dtype, Role::MatrixOfZeros, K);
                    product_of(&plugin, kind, &w, x, n_threads, true, |g, w, x| g.mul_mat(w, x))
                };
                // Of the first columns one has no zero.
                let y: Vec<u8> = x.chunks(columns * K as usize).take(3).flat_map(of).collect();
                let what =
                    format!("{dtype}, {m} rows, {}, {columns} columns, {n_threads} threads", isa.name());
                assert!(y == expected[..y.len()], "{what}");
            }
        }
    }
}

/// Blocks of 32 elements are multiplied four at a time.
#[test]
fn the_last_blocks_of_matrices_by_columns_may_be_fewer_than_four() {
    let (k, m) = (5 * 32, 512);
    let mut n_dtypes = 0;
    for dtype in COMMON.into_iter().filter(|dtype| dtype.block_elems() == 32) {
        let (w, mut x) = operands_of(dtype, k, m);
        x.iter_mut().enumerate().filter(|(i, _)| i % 7 != 2).for_each(|(_, x)| *x = 0.0);
        let run = |plugin: &Plugin, role, x: &[f32]| {
            product_of(plugin, (dtype, role, k), &w, x, 1, true, |g, w, x| g.mul_mat(w, x))
        };
        let few = [1, 7].map(|columns| &x[..columns * k as usize]);
        let expected = few.map(|x| run(&Plugin::open("scalar").unwrap(), Role::Matrix, x));
        for isa in Isa::available() {
            let plugin = Plugin::open(isa.name()).unwrap();
            let found = few.map(|x| run(&plugin, Role::MatrixOfZeros, x));
            assert!(found == expected, "{dtype}, {}", isa.name());
        }
        n_dtypes += 1;
    }
    assert!(n_dtypes > 4);
}

/// The scores are a row of x, from the first to the last of its magnitudes.
#[test]
fn picked_rows_have_the_bits_of_all_rows() {
    let m = 300;
    for dtype in COMMON {
        let (w, x) = operands(dtype, m);
        let all = product(&Plugin::open("scalar").unwrap(), dtype, &w, &x, 1, false);
        for isa in Isa::available() {
            let plugin = Plugin::open(isa.name()).unwrap();
            for (columns, n_threads, pick) in [
                (1, 1, Pick::Above(0.8)),
                (1, 2, Pick::NotBelow(0.2)),
                (1, 3, Pick::NotBelow(-1.0)),
                (2, 2, Pick::Above(0.9)),
                (4, 1, Pick::Above(0.6)),
                (7, 2, Pick::Above(0.7)),
                (7, 1, Pick::Above(0.68)),
                (N, 2, Pick::Above(0.95)),
                (N, 1, Pick::Above(1.0)),
            ] {
                let mut expected = all[..4 * columns * m as usize].to_vec();
                for (i, y) in expected.chunks_exact_mut(4).enumerate() {
                    let score = x[i / m as usize * K as usize + i % m as usize];
                    if !pick.passes(score) {
                        y.fill(0);
                    }
                }
                let found = product_of(
                    &plugin,
                    (dtype, Role::Other, K),
                    &w,
                    &x[..columns * K as usize],
                    n_threads,
                    false,
                    |g, w, x| {
                        let scores = g.slice(x, 0, 0, m);
                        g.mul_mat_sparse(w, x, scores, pick)
                    },
                );
                assert!(found == expected, "{dtype}, {}, {columns} columns, {pick:?}", isa.name());
            }
        }
    }
}

#[test]
fn rows_of_a_sealed_table_are_those_of_the_table() {
    for dtype in COMMON {
        let case = Case::new("the matrix of the result is the table too", |g, ints| {
            let table = g.weight("w", dtype, &[K, M], Role::Matrix);
            let ids = g.input("ids", DType::I32, &[5]);
            ints.push((ids, vec![0, 36, 17, 31, 2]));
            g.get_rows(table, ids);
        });
        let memory = case.values(3).unwrap();
        let plugin = Plugin::open(Isa::best().name()).unwrap();
        let rows = plugin.run(&case.graph, &memory, 1).unwrap();
        assert!(plugin.run_sealed(&case.graph, &memory, 1).unwrap() == rows, "{dtype}");
    }
}

#[test]
fn sealed_experts_give_the_bits_of_those_in_the_file() {
    for dtype in COMMON {
        let case = Case::new("4 experts of 37 rows", |g, ints| {
            let w = g.weight("w", dtype, &[512, M, 4], Role::Experts);
            let x = g.input("x", DType::F32, &[512, 1, 6]);
            let ids = g.input("ids", DType::I32, &[2, 6]);
            ints.push((ids, vec![0, 1, 3, 1, 0, 3, 1, 0, 3, 0, 1, 2]));
            g.mul_mat_id(w, x, ids);
        });
        let memory = case.values(3).unwrap();
        let plugin = Plugin::open(Isa::best().name()).unwrap();
        let y = plugin.run(&case.graph, &memory, 1).unwrap();
        assert!(plugin.run_sealed(&case.graph, &memory, 2).unwrap() == y, "{dtype}");
    }
}

#[test]
fn a_graph_too_small_for_a_team_gives_the_bits_that_a_team_gives() {
    let case = Case::new("a norm, its product, and a sum", |g, _| {
        let x = g.input("x", DType::F32, &[K, 1]);
        let w = g.weight("w", DType::Q4_0, &[K, M], Role::Matrix);
        let h = g.rms_norm(x, None, 1e-5);
        let y = g.mul_mat(w, h);
        g.add(y, y);
    });
    let y = case.graph.nodes.last().unwrap().dst.0 as usize;
    let memory = case.values(5).unwrap();
    let mut with_a_team = case.graph.clone();
    worth_a_team(&mut with_a_team);
    let plugin = Plugin::open(Isa::best().name()).unwrap();
    let run = |graph, n_threads| plugin.run(graph, &memory, n_threads).unwrap().swap_remove(y);
    let expected = run(&case.graph, 1);
    for n_threads in [2, 3, 4] {
        assert!(run(&case.graph, n_threads) == expected, "small, {n_threads} threads");
        assert!(run(&with_a_team, n_threads) == expected, "a team of {n_threads}");
    }
}

#[test]
fn of_rows_for_one_slot_the_last_stays_whatever_the_threads() {
    const ROWS: usize = 64;
    let slots: Vec<i32> = (0..ROWS as i32).map(|i| i * i % 7 * 16).collect();
    for dtype in [DType::F32, DType::Q8_0] {
        let case = Case::new("", |g, ints| {
            let cache = g.state("cache", dtype, &[1024, 112], Role::KCache);
            let rows = g.input("rows", DType::F32, &[1024, ROWS as u64]);
            let at = g.input("slots", DType::I32, &[ROWS as u64]);
            ints.push((at, slots.clone()));
            g.set_rows(cache, rows, at);
            worth_a_team(g);
        });
        let memory = case.values(9).unwrap();
        let plugin = Plugin::open(Isa::best().name()).unwrap();
        let expected = plugin.run(&case.graph, &memory, 1).unwrap().swap_remove(0);
        let value = memory.get(&case.graph, Tensor(1)).unwrap();
        let row_bytes = 1024 / dtype.block_elems() * dtype.block_bytes();
        for slot in [0, 16, 32, 64] {
            let last = slots.iter().rposition(|&s| s == slot as i32).unwrap();
            let row = llmrt_graph::quant::quantise(dtype, value.row(last));
            assert!(expected[slot * row_bytes..][..row_bytes] == row, "{dtype}, slot {slot}");
        }
        for n_threads in [2, 3, 4, 2, 3, 4] {
            let cache = plugin.run(&case.graph, &memory, n_threads).unwrap().swap_remove(0);
            assert!(cache == expected, "{dtype}, {n_threads} threads");
        }
    }
}

const TOKENS: usize = 75;
const N_HEADS: u64 = 6;
const N_KV_HEADS: u64 = 2;

#[test]
fn a_prompt_in_chunks_or_token_by_token_gives_the_bits_of_the_whole_prompt() {
    for cache in [DType::F32, DType::F16, DType::Q8_0, DType::BF16] {
        let plain = AttentionParams { n_kv_heads: N_KV_HEADS as u32, scale: 0.3, ..Default::default() };
        for p in [
            AttentionParams { block_size: 16, ..plain },
            AttentionParams { block_size: 16, window: 20, ..plain },
            AttentionParams { block_size: 16, chunk: 24, ..plain },
            AttentionParams { block_size: 8, softcap: 30.0, ..plain },
            AttentionParams { block_size: 5, window: 33, max_bias: 8.0, ..plain },
            AttentionParams { block_size: 32, ..plain },
        ] {
            let mut expected: Option<Vec<u8>> = None;
            for isa in Isa::available() {
                let plugin = Plugin::open(isa.name()).unwrap();
                for chunks in [vec![TOKENS], vec![40, 35], vec![7, 1, 30, 37], vec![1; TOKENS]] {
                    for n_threads in [1, 3] {
                        let y = prompt(&plugin, cache, 32, &p, &chunks, n_threads);
                        let same = expected.get_or_insert_with(|| y.clone()) == &y;
                        assert!(same, "{cache} {p:?} {} {n_threads} threads, chunks {chunks:?}", isa.name());
                    }
                }
            }
        }
    }
}

/// Sums over many keys are merged from splits, which a team computes side by side for few tokens; heads of 48 are no whole
/// number of Q8_0 blocks.
#[test]
fn the_last_tokens_of_a_long_prompt_one_by_one_give_the_bits_of_the_whole_prompt() {
    for cache in [DType::F16, DType::Q8_0] {
        for (head_dim, window) in [(64, 0), (48, 600), (64, 300)] {
            let (block_size, scale) = (16, 0.3);
            let n_kv_heads = N_KV_HEADS as u32;
            let p = AttentionParams { n_kv_heads, block_size, window, scale, ..Default::default() };
            let mut expected: Option<Vec<u8>> = None;
            for isa in Isa::available() {
                let plugin = Plugin::open(isa.name()).unwrap();
                for (chunks, n_threads) in [
                    (&[1100][..], 1),
                    (&[1100], 8),
                    (&[513, 587], 3),
                    (&[1095, 1, 1, 3], 1),
                    (&[1095, 1, 1, 3], 3),
                    (&[1095, 1, 1, 3], 8),
                ] {
                    let y = prompt(&plugin, cache, head_dim, &p, chunks, n_threads);
                    let same = expected.get_or_insert_with(|| y.clone()) == &y;
                    assert!(same, "{cache} {p:?} {} {n_threads} threads, chunks {chunks:?}", isa.name());
                }
            }
        }
    }
}

/// Attention of a prompt whose keys are all in the cache, chunk by chunk; beside another sequence.
fn prompt(
    plugin: &Plugin,
    cache: DType,
    head_dim: u64,
    p: &AttentionParams,
    chunks: &[usize],
    n_threads: u32,
) -> Vec<u8> {
    let n_tokens: usize = chunks.iter().sum();
    let n_blocks = n_tokens.div_ceil(p.block_size as usize) + 2;
    let n_slots = n_blocks as u64 * p.block_size as u64;
    let mut all = vec![];
    let mut done = 0;
    for &n in chunks {
        let mut g = Graph::new();
        let q = g.input("q", DType::F32, &[head_dim, N_HEADS, n_tokens as u64 + 1]);
        let q = g.slice(q, 2, done as u64, n as u64 + 1);
        let k = g.state("k", cache, &[head_dim * N_KV_HEADS, n_slots], Role::KCache);
        let v = g.state("v", cache, &[head_dim * N_KV_HEADS, n_slots], Role::VCache);
        let paged = Paged {
            block_table: g.input("block_table", DType::I32, &[n_blocks as u64, 2]),
            seq_lens: g.input("seq_lens", DType::I32, &[2]),
            query_starts: g.input("query_starts", DType::I32, &[3]),
        };
        let y = g.attention(q, k, v, &paged, p);
        if n_threads > 1 {
            worth_a_team(&mut g);
        }
        // Blocks in reverse, so that positions and slots differ.
        let table: Vec<i32> = (0..2).flat_map(|_| (0..n_blocks as i32).rev()).collect();
        let ints = vec![
            (paged.block_table, table),
            (paged.seq_lens, vec![(done + n) as i32, 3]),
            (paged.query_starts, vec![0, n as i32, n as i32 + 1]),
        ];
        let case = Case { name: String::new(), graph: g, ints, nmse: 0.0 };
        let memory = case.values(3).unwrap();
        let mut tensors = plugin.run(&case.graph, &memory, n_threads).unwrap();
        done += n;
        let row = (head_dim * N_HEADS * 4) as usize;
        all.extend_from_slice(&tensors.swap_remove(y.0 as usize)[..n * row]);
    }
    all
}
