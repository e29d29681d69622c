//! Every case of the ops' rules that a simulated card takes, against the plain references, weights sealed as a loader
//! seals them. Nothing here shows what a real card does.

mod common;
#[path = "common/placed.rs"]
mod placed;

use common::Machine;
use llmrt_abi::{DType, Op, op::AttentionParams};
use llmrt_graph::ops::{case::Case, rules};
use llmrt_graph::{Paged, Role};
use placed::{has_empty, on_cards, run, run_with};

const A2: &str = "Ascend910B3";
const P310: &str = "Ascend310P3";
const B310: &str = "Ascend310B1";
const A910: &str = "Ascend910A";

#[test]
fn products_are_right() {
    check(&[Op::MulMat, Op::MulMatId, Op::OutProd], 30);
}

/// Weights in the layouts that options request.
#[test]
fn products_are_right_in_other_layouts() {
    let of = |&op: &Op| rules(op).cases().into_iter().map(move |case| (op, case));
    let cases = [Op::MulMat, Op::MulMatId, Op::GetRows, Op::OutProd].iter().flat_map(of).chain(beyond());
    let cases: Vec<_> = cases.filter(|(_, case)| !has_empty(case)).collect();
    for options in [[("cann.nz", "1"), ("cann.columns", "0")], [("cann.nz", "0"), ("cann.columns", "1")]] {
        let m = Machine::with_options("9.1", "devices=2,queue=delay,memory=2g", &options);
        let (taken, mut wrong) =
            on_cards(&m.host().devices(), &cases, |card, stream, op, case| match run(card, stream, case) {
                Ok(None) => None,
                Ok(Some(error)) if error <= limit(A2, op, case) => Some(vec![]),
                Ok(Some(error)) => Some(vec![format!("NMSE {error:e}")]),
                Err(e) => Some(vec![e.to_string()]),
            });
        wrong.extend(m.reports());
        assert!(wrong.is_empty(), "{options:?}: {} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
        assert_eq!(m.count("refused"), 0, "{options:?}: operators refused");
        let layout = if options[0].1 == "1" { "layout.nz" } else { "layout.columns" };
        assert!(m.count(layout) > 4, "{layout}: {}", m.count(layout));
    }
}

#[test]
fn rows_are_picked_and_written() {
    check(&[Op::GetRows, Op::SetRows, Op::Copy, Op::Cpy, Op::Concat, Op::Repeat], 60);
}

#[test]
fn norms_and_softmax_are_right() {
    check(&[Op::RmsNorm, Op::LayerNorm, Op::GroupNorm, Op::L2Norm, Op::SoftMax], 30);
}

#[test]
fn heads_are_turned() {
    check(&[Op::Rope], 20);
}

#[test]
fn attention_sees_what_it_should() {
    check(&[Op::Attention, Op::PagedMask, Op::AttentionContiguous], 20);
}

#[test]
fn elements_are_right() {
    let ops = Op::ALL.iter().filter(|op| (3..20).contains(&op.id()) || (40..80).contains(&op.id()));
    let ops: Vec<Op> = ops.copied().chain([Op::Glu]).collect();
    check(&ops, 30);
}

#[test]
fn experts_are_chosen() {
    check(&[Op::TopK, Op::Argsort, Op::MoeWeights, Op::Argmax], 20);
}

#[test]
fn everything_else_is_right() {
    let ops: Vec<Op> = Op::ALL.iter().copied().filter(|op| op.id() >= 80).collect();
    check(&ops, 1500);
}

/// What the rules' cases do not reach: the operators' limits, and the other ways of computing.
#[test]
fn limits_of_the_library_are_kept() {
    check_cases(beyond().into_iter(), 18);
}

fn beyond() -> Vec<(Op, Case)> {
    let mut cases = vec![];
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q5_0] {
        for (k, m, n) in [(32, 5, 3), (64, 65_600, 1), (96, 7, 1), (64, 65_504, 1)] {
            let case = Case::new(format!("{dtype} [{k}, {m}] times {n} rows"), |g, _| {
                let w = g.weight("w", dtype, &[k, m], Role::Matrix);
                let x = g.input("x", DType::F32, &[k, n]);
                g.mul_mat(w, x);
            });
            cases.push((Op::MulMat, case.nmse(5e-4)));
        }
    }
    for dtype in [DType::Q4_1, DType::Q5_1, DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K] {
        let times = Case::new(format!("{dtype} [512, 7] times 3 rows"), |g, _| {
            let w = g.weight("w", dtype, &[512, 7], Role::Matrix);
            let x = g.input("x", DType::F32, &[512, 3]);
            g.mul_mat(w, x);
        });
        cases.push((Op::MulMat, times.nmse(5e-4)));
        let rows = Case::new(format!("rows of a {dtype} table"), |g, ints| {
            let table = g.weight("table", dtype, &[256, 9], Role::Embedding);
            let ids = g.input("ids", DType::I32, &[4]);
            ints.push((ids, vec![8, 0, 9, 3]));
            g.get_rows(table, ids);
        });
        cases.push((Op::GetRows, rows));
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q8_0, DType::Q5_0] {
        for n_x in [1, 2] {
            let case =
                Case::new(format!("two of 16 {dtype} experts, {n_x} rows, one id outside"), |g, ints| {
                    let w = g.weight("w", dtype, &[64, 6, 16], Role::Experts);
                    let x = g.input("x", DType::F32, &[64, n_x, 2]);
                    let ids = g.input("ids", DType::I32, &[2, 2]);
                    ints.push((ids, vec![15, 0, 16, 7]));
                    g.mul_mat_id(w, x, ids);
                });
            cases.push((Op::MulMatId, case.nmse(5e-4)));
        }
    }
    for m in [1, 64] {
        let case = Case::new(format!("results of {m} F16 rows beyond F16"), |g, _| {
            let w = g.weight("w", DType::F16, &[256, m], Role::Matrix);
            let x = g.input("x", DType::F32, &[256, 3]);
            let x = g.scale(x, 20_000.0);
            g.mul_mat(w, x);
        });
        cases.push((Op::MulMat, case.nmse(5e-4)));
    }
    for (name, window, lens, starts) in [
        ("one decode", 0, vec![37], vec![0, 1]),
        ("three decodes, one not in use, a token of none", 0, vec![37, 1, 0, 64], vec![0, 1, 2, 2, 3]),
        ("a chunk and a decode in a window", 20, vec![37, 30, 5], vec![0, 1, 4, 4]),
        ("a prompt", 0, vec![40], vec![0, 40]),
    ] {
        for cache in [DType::F16, DType::BF16, DType::F32] {
            for heads in [[4, 2], [3, 3]] {
                let case = attention_of(heads, name, window, &lens, &starts, cache);
                cases.push((Op::Attention, case));
            }
        }
    }
    cases
}

/// Blocks of 16, as servers have them; one token more than queries; two KV heads for four.
fn attention(name: &str, window: u32, lens: &[i32], starts: &[i32], cache: DType) -> Case {
    attention_of([4, 2], name, window, lens, starts, cache)
}

fn attention_of(
    [n_heads, n_kv_heads]: [u64; 2],
    name: &str,
    window: u32,
    lens: &[i32],
    starts: &[i32],
    cache: DType,
) -> Case {
    let case = Case::new(format!("{name}, {n_heads} heads over {n_kv_heads}, {cache}"), |g, ints| {
        let n_seqs = lens.len() as u64;
        let n_tokens = starts.last().copied().unwrap_or(0) as u64 + u64::from(n_seqs > 3);
        let q = g.input("q", DType::F32, &[32, n_heads, n_tokens]);
        let k = g.state("k", cache, &[32 * n_kv_heads, 20 * 16], Role::KCache);
        let v = g.state("v", cache, &[32 * n_kv_heads, 20 * 16], Role::VCache);
        let paged = Paged {
            block_table: g.input("block_table", DType::I32, &[4, n_seqs]),
            seq_lens: g.input("seq_lens", DType::I32, &[n_seqs]),
            query_starts: g.input("query_starts", DType::I32, &[n_seqs + 1]),
        };
        ints.push((paged.block_table, (0..4 * n_seqs as i32).map(|i| i * 7 % 19).collect()));
        ints.push((paged.seq_lens, lens.to_vec()));
        ints.push((paged.query_starts, starts.to_vec()));
        let n_kv_heads = n_kv_heads as u32;
        let p = AttentionParams { n_kv_heads, block_size: 16, scale: 0.2, window, ..Default::default() };
        g.attention(q, k, v, &paged, &p);
    });
    case.nmse(if cache == DType::F32 { 1e-7 } else { 5e-4 })
}

/// One operator where the vendor has one, and what layers share is computed once.
#[test]
fn decodes_use_the_fused_operators() {
    let m = Machine::new("queue=now,memory=1g");
    let (card, before) = (m.card(0), ["aclnnFusedInferAttentionScoreV2", "aclnnRotaryPositionEmbedding"]);
    let stream = card.stream(1).unwrap();
    for case in [
        attention("a decode", 0, &[37], &[0, 1], DType::F16),
        attention("a prompt", 0, &[40], &[0, 40], DType::F16),
    ] {
        let error = run(&card, &stream, &case).unwrap().unwrap();
        assert!(error <= limit(A2, Op::Attention, &case), "{error:e}");
    }
    let rope = rules(Op::Rope).cases();
    run(&card, &stream, &rope[0]).unwrap().unwrap();
    assert_eq!(before.map(|name| m.count(name)), [2, 1]);
}

/// A long sequence and three short ones in a cache that has no room for four long ones: each reads blocks by its own row of the
/// table, which has as many columns as the long one requires, and no keys are gathered. A token is two KiB of keys and values.
#[test]
fn decodes_of_uneven_lengths_read_their_own_blocks() {
    let case = Case::new("decodes of 240, 5, 9 and 16 tokens", |g, ints| {
        let q = g.input("q", DType::F32, &[64, 8, 4]);
        let k = g.state("k", DType::F16, &[64 * 8, 40 * 16], Role::KCache);
        let v = g.state("v", DType::F16, &[64 * 8, 40 * 16], Role::VCache);
        let paged = Paged {
            block_table: g.input("block_table", DType::I32, &[16, 4]),
            seq_lens: g.input("seq_lens", DType::I32, &[4]),
            query_starts: g.input("query_starts", DType::I32, &[5]),
        };
        let table = (0..64).map(|i| if i < 16 { 39 - 2 * i } else { i / 16 * 2 });
        ints.push((paged.block_table, table.collect()));
        ints.push((paged.seq_lens, vec![240, 5, 9, 16]));
        ints.push((paged.query_starts, vec![0, 1, 2, 3, 4]));
        let p = AttentionParams { n_kv_heads: 8, block_size: 16, scale: 0.2, ..Default::default() };
        g.attention(q, k, v, &paged, &p);
    });
    let case = case.nmse(5e-4);
    for (soc, operator) in [(A2, "aclnnFusedInferAttentionScoreV2"), (P310, "aclnnIncreFlashAttentionV4")] {
        let m = Machine::new(&format!("soc={soc},queue=now,memory=1g"));
        let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
        let error = run(&card, &stream, &case).unwrap().unwrap();
        assert!(error <= limit(soc, Op::Attention, &case), "{soc}: {error:e}");
        let bytes = ["aclnnGatherV2", operator].map(|name| m.count(&format!("{name}.bytes")));
        assert_eq!(m.count(operator), 2, "{soc}: two tokens' tables are no more than the cache; {bytes:?}");
        let tables = 4 * 16 * 16 * 2048;
        assert!(bytes[0] < tables / 100 && bytes[1] < tables / 10 * 11, "{soc}: {bytes:?} of {tables}");
        assert_eq!(m.reports(), [""; 0], "{soc}");
    }
}

#[test]
fn experts_go_to_the_operator_for_groups_of_rows_where_it_takes_their_format() {
    let m = Machine::new("queue=now,memory=1g");
    let card = m.card(0);
    let stream = card.stream(1).unwrap();
    for (case, expected) in [("Q4_0", 1), ("F16", 1), ("Q8_0", 0), ("F32", 0)] {
        let before = m.count("aclnnGroupedMatmulV4");
        let of = format!("two of 16 {case} experts, 1 rows");
        let found = beyond().into_iter().find(|(_, case)| case.name.starts_with(&of)).unwrap();
        run(&card, &stream, &found.1).unwrap().unwrap();
        assert_eq!(m.count("aclnnGroupedMatmulV4") - before, expected, "{case}");
    }
}

/// Rows of two BF16 numbers each have 16 bits, and results are F32: one of 8 bits has an error of 1e-6.
#[test]
fn bf16_products_keep_16_bits() {
    let m = Machine::new("queue=now,memory=1g");
    let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
    for n in [1, 7] {
        let case = Case::new("BF16 weights", |g, _| {
            let w = g.weight("w", DType::BF16, &[256, 40], Role::Matrix);
            let x = g.input("x", DType::F32, &[256, n]);
            g.mul_mat(w, x);
        });
        let before = m.count("aclnnMm");
        let error = run(&card, &stream, &case).unwrap().unwrap();
        assert!(error < 1e-9, "{error:e}");
        assert_eq!(m.count("aclnnMm") - before, 1, "weights are read once");
    }
}

/// Sorts of one number run on the card's CPU, and are left out.
#[test]
fn one_expert_of_one_token_is_not_sorted() {
    let m = Machine::new("queue=now,memory=1g");
    let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
    let case = Case::new("1 of 4 experts for a token", |g, ints| {
        let experts = g.weight("experts", DType::F16, &[64, 32, 4], Role::Experts);
        let x = g.input("x", DType::F32, &[64, 1, 1]);
        let ids = g.input("ids", DType::I32, &[1, 1]);
        ints.push((ids, vec![2]));
        g.mul_mat_id(experts, x, ids);
    });
    let error = run(&card, &stream, &case).unwrap().unwrap();
    assert!(error <= limit(A2, Op::MulMatId, &case), "{error:e}");
    assert!(m.count("aclnnGroupedMatmulV4") > 0);
    assert_eq!(m.count("ai_cpu"), 0);
}

/// Releases differ in what an operator takes: where one refuses a node, others compute it.
#[test]
fn what_an_operator_refuses_is_composed_of_others() {
    let of = |op, start: &str, end: &str| {
        let mut cases = rules(op).cases().into_iter();
        cases.find(|case| case.name.starts_with(start) && case.name.ends_with(end)).unwrap()
    };
    let experts = |end| of(Op::MulMatId, "2 of 4 Q4_0 experts", end);
    let product = || of(Op::MulMat, "Q8_0 weights [256", "");
    for code in [161_001, 161_002, 361_001, 561_000, 561_002, 561_103] {
        for (op, case) in [
            ("aclnnGroupedMatmulV4", experts("F32 for each of 1 tokens")),
            ("aclnnGroupedMatmulV4", experts("F32 for each of 20 tokens")),
            ("aclnnWeightQuantBatchMatmulV2", product()),
            ("aclnnMm@27", of(Op::MulMat, "BF16 weights [", "")),
            ("aclnnFusedInferAttentionScoreV2", attention("a decode", 0, &[37], &[0, 1], DType::F16)),
        ] {
            let m = Machine::new(&format!("queue=now,memory=1g,refuse={op}:{code}"));
            let card = m.card(0);
            let stream = card.stream(1).unwrap();
            let error = run(&card, &stream, &case).unwrap().unwrap();
            assert!(error <= limit(A2, Op::MulMat, &case), "{op} {code}: {error:e}");
            assert!(m.count("refused") > 0, "{op} was not tried");
        }
    }
}

/// A 310P has an operator for single queries, of heads that share no keys.
#[test]
fn a_310p_decodes_by_its_own_operator_where_heads_share_nothing() {
    let m = Machine::new("soc=Ascend310P3,queue=now,memory=1g");
    let card = m.card(0);
    let stream = card.stream(1).unwrap();
    for (heads, starts, expected) in [([4, 4], [0, 1], 1), ([4, 2], [0, 1], 0), ([4, 4], [0, 30], 0)] {
        let before = m.count("aclnnIncreFlashAttentionV4");
        let case = attention_of(heads, "", 0, &[37], &starts, DType::F16);
        run(&card, &stream, &case).unwrap().unwrap();
        assert_eq!(m.count("aclnnIncreFlashAttentionV4") - before, expected, "{heads:?}, {starts:?}");
    }
}

/// At least `n` cases on a 910B, all right on all chips; in all modes of the streams on the two that have users.
fn check(ops: &[Op], n: usize) {
    check_cases(ops.iter().flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case))), n);
}

/// Weights are sealed but for one mode, in which they stay as they are in a file. The modes differ in when a card does its work,
/// so a chip's further modes that share all else run every third case.
fn check_cases(cases: impl Iterator<Item = (Op, Case)>, n: usize) {
    let cases: Vec<_> = cases.filter(|(_, case)| !has_empty(case)).collect();
    // The first case, and from each to the next.
    for (soc, queue, first, step) in [
        (A2, "delay", 0, 1),
        (A2, "now", 0, 1),
        (A2, "sync", 0, 3),
        (P310, "delay", 0, 1),
        (P310, "sync", 1, 3),
        (P310, "now", 2, 3),
        (B310, "delay", 0, 1),
        (A910, "delay", 0, 1),
    ] {
        let of_mode = cases.iter().skip(first).step_by(step);
        let m = Machine::new(&format!("devices=2,soc={soc},queue={queue},memory=2g"));
        let (taken, mut wrong) = on_cards(&m.host().devices(), of_mode.clone(), |card, stream, op, case| {
            match run_with(card, stream, case, queue != "now") {
                Ok(None) => None,
                Ok(Some(error)) if error <= limit(soc, op, case) => Some(vec![]),
                Ok(Some(error)) => Some(vec![format!("NMSE {error:e}, limit {:e}", limit(soc, op, case))]),
                Err(e) => Some(vec![e.to_string()]),
            }
        });
        println!("{soc} {queue}: {taken} of {} cases", of_mode.len());
        wrong.extend(m.reports());
        assert!(wrong.is_empty(), "{soc} {queue}: {} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
        // Ways that need another after a refusal are for releases that differ.
        assert_eq!(m.count("refused"), 0, "{soc} {queue}: operators refused");
        assert_eq!(m.count("ai_cpu"), 0, "{soc} {queue}: operators on the card's CPU");
        assert!(step > 1 || soc != A2 || taken >= n, "{soc}: {taken} cases, expected {n}");
    }
}

/// F16 units round both operands; F32 ones do not.
fn limit(soc: &str, op: Op, case: &Case) -> f64 {
    let multiplies =
        matches!(op, Op::MulMat | Op::MulMatId | Op::OutProd | Op::Attention | Op::AttentionContiguous);
    let halves = case.graph.tensors.iter().any(|t| t.dtype != DType::F32 && t.dtype != DType::I32);
    if multiplies && (soc != A2 || halves) { case.nmse.max(1e-6) } else { case.nmse }
}
