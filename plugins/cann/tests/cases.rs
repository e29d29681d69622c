//! Every case of the ops' rules that a simulated card takes, against the plain references, weights sealed as a loader
//! seals them. Nothing here shows what a real card does.

mod common;

use common::Machine;
use llmrt_abi::types::{TENSOR_INPUT, TENSOR_STATE, TENSOR_WEIGHT};
use llmrt_abi::{DType, Op, op::AttentionParams};
use llmrt_graph::ops::{case::Case, rules, value::Data, value::Value};
use llmrt_graph::{Kind, Paged, Role, Tensor, reference};
use llmrt_host::{Buffer, Device, NodeDesc, RawGraph, RawGraphBuilder, Result, Stream, TensorDesc};
use std::path::Path;
use std::sync::Arc;

const A2: &str = "Ascend910B3";
const P310: &str = "Ascend310P3";
const B310: &str = "Ascend310B1";
const A910: &str = "Ascend910A";

#[test]
fn products_are_right() {
    check(&[Op::MulMat, Op::MulMatId, Op::OutProd], 30);
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
    check_cases(|| beyond().into_iter(), 18);
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
    for (name, window, lens, starts) in [
        ("one decode", 0, vec![37], vec![0, 1]),
        ("three decodes, one not in use, a token of none", 0, vec![37, 1, 0, 64], vec![0, 1, 2, 2, 3]),
        ("a chunk and a decode in a window", 20, vec![37, 30, 5], vec![0, 1, 4, 4]),
        ("a prompt", 0, vec![40], vec![0, 40]),
    ] {
        for cache in [DType::F16, DType::BF16, DType::F32] {
            cases.push((Op::Attention, attention(name, window, &lens, &starts, cache)));
        }
    }
    cases
}

/// Blocks of 16, as servers have them; one token more than queries.
fn attention(name: &str, window: u32, lens: &[i32], starts: &[i32], cache: DType) -> Case {
    let case = Case::new(format!("{name}, {cache}"), |g, ints| {
        let n_seqs = lens.len() as u64;
        let n_tokens = starts.last().copied().unwrap_or(0) as u64 + u64::from(n_seqs > 3);
        let q = g.input("q", DType::F32, &[32, 4, n_tokens]);
        let k = g.state("k", cache, &[64, 20 * 16], Role::KCache);
        let v = g.state("v", cache, &[64, 20 * 16], Role::VCache);
        let paged = Paged {
            block_table: g.input("block_table", DType::I32, &[4, n_seqs]),
            seq_lens: g.input("seq_lens", DType::I32, &[n_seqs]),
            query_starts: g.input("query_starts", DType::I32, &[n_seqs + 1]),
        };
        ints.push((paged.block_table, (0..4 * n_seqs as i32).map(|i| i * 7 % 19).collect()));
        ints.push((paged.seq_lens, lens.to_vec()));
        ints.push((paged.query_starts, starts.to_vec()));
        let p = AttentionParams { n_kv_heads: 2, block_size: 16, scale: 0.2, window, ..Default::default() };
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
        run(&card, &stream, &case).unwrap().unwrap();
    }
    let rope = rules(Op::Rope).cases();
    run(&card, &stream, &rope[0]).unwrap().unwrap();
    assert_eq!(before.map(|name| m.count(name)), [2, 1]);
}

/// docs/cann-ops.md is what the simulated cards claim.
#[test]
fn the_table_of_ops_is_current() {
    let columns = [A2, P310].map(|soc| {
        let m = Machine::new(&format!("soc={soc}"));
        Op::ALL.iter().map(|&op| claim(&m.card(0), op)).collect::<Vec<_>>()
    });
    let mut table = String::from(HEAD);
    for (i, op) in Op::ALL.iter().enumerate() {
        let how = llmrt_cann::ops::how(*op).unwrap_or("CPU");
        table += &format!("| {op} | {} | {} | {how} |\n", columns[0][i], columns[1][i]);
    }
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cann-ops.md");
    std::fs::write(&made, &table).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cann-ops.md");
    let found = std::fs::read_to_string(&kept).unwrap_or_default();
    assert!(found == table, "docs/cann-ops.md is old; copy {} over it", made.display());
}

const HEAD: &str = "# Ops of the cann plugin

Written from what the plugin claims of the op rules' cases with the simulator's libraries; a test compares. Nothing here
has run on a card. *all*, *some*: of the cases; *CPU*: none; *–*: the op has no cases yet. What is refused goes to the CPU.

| op | 910B | 310P | how |
|---|---|---|---|
";

/// How many of an op's cases a card takes.
fn claim(card: &Device, op: Op) -> &'static str {
    let cases = rules(op).cases();
    let cases: Vec<_> = cases.iter().filter(|case| !has_empty(case)).collect();
    let taken = cases.iter().filter(|case| is_taken(card, case).unwrap()).count();
    match taken {
        _ if cases.is_empty() => "–",
        0 => "CPU",
        n if n == cases.len() => "all",
        _ => "some",
    }
}

/// A host takes no empty tensors.
fn has_empty(case: &Case) -> bool {
    case.graph.tensors.iter().any(|t| t.n_elems() == 0)
}

/// At least `n` cases on a 910B, all right on both chips and in all modes of the streams.
fn check(ops: &[Op], n: usize) {
    let cases = || ops.iter().flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case)));
    check_cases(cases, n);
}

fn check_cases<I: Iterator<Item = (Op, Case)>>(cases: impl Fn() -> I, n: usize) {
    for (soc, queue) in
        [(A2, "delay"), (A2, "sync"), (P310, "delay"), (P310, "sync"), (B310, "delay"), (A910, "delay")]
    {
        let m = Machine::new(&format!("soc={soc},queue={queue},memory=2g"));
        let card = m.card(0);
        let stream = card.stream(1).unwrap();
        let (mut taken, mut all, mut wrong) = (0, 0, Vec::new());
        for (op, case) in cases().filter(|(_, case)| !has_empty(case)) {
            all += 1;
            match run(&card, &stream, &case) {
                Ok(None) => continue,
                Ok(Some(error)) if error <= limit(soc, op, &case) => {}
                Ok(Some(error)) => wrong.push(format!("{op}: {}: NMSE {error:e}", case.name)),
                Err(e) => wrong.push(format!("{op}: {}: {e}", case.name)),
            }
            taken += 1;
        }
        println!("{soc} {queue}: {taken} of {all} cases");
        wrong.extend(m.reports());
        assert!(wrong.is_empty(), "{soc} {queue}: {} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
        assert!(soc != A2 || taken >= n, "{soc}: {taken} cases, expected {n}");
    }
}

/// F16 units round both operands; F32 ones do not.
fn limit(soc: &str, op: Op, case: &Case) -> f64 {
    let multiplies =
        matches!(op, Op::MulMat | Op::MulMatId | Op::OutProd | Op::Attention | Op::AttentionContiguous);
    let halves = case.graph.tensors.iter().any(|t| t.dtype != DType::F32 && t.dtype != DType::I32);
    if multiplies && (soc == P310 || soc == B310 || halves) { case.nmse.max(1e-6) } else { case.nmse }
}

/// A case's graph; tensors that own their bytes are where `place` says: a buffer, and the layout in it.
fn raw<'a>(case: &Case, place: impl Fn(usize) -> (Option<&'a Buffer>, u32)) -> Result<RawGraph> {
    let mut builder = RawGraphBuilder::new();
    for (i, def) in case.graph.tensors.iter().enumerate() {
        let (buffer, layout_id) = place(def.view.map_or(i, |(t, _)| t.0 as usize));
        let view = def.view.map(|(t, offset)| (t.0, offset));
        builder.tensor(&TensorDesc { buffer, view, layout_id, ..describe(case, i) })?;
    }
    for node in &case.graph.nodes {
        let info = node.op.info();
        let srcs: Vec<_> = node.src.iter().map(|src| src.map(|t| t.0)).collect();
        let (op, op_version, dst) = (info.id, info.version, node.dst.0);
        builder.node(&NodeDesc { op, op_version, dst, srcs: &srcs, params: &node.params })?;
    }
    Ok(builder.build())
}

/// Tensor `i` without memory.
fn describe(case: &Case, i: usize) -> TensorDesc<'_> {
    let def = &case.graph.tensors[i];
    let flags = match def.kind {
        Kind::Weight => TENSOR_WEIGHT,
        Kind::Input => TENSOR_INPUT,
        Kind::State => TENSOR_STATE,
        Kind::Computed => 0,
    };
    let offset = def.view.map_or(0, |(_, offset)| offset);
    let plain = TensorDesc::contiguous(def.dtype, def.ne);
    TensorDesc { nb: def.nb, role: def.role as u32, flags, offset, name: &def.name, ..plain }
}

fn is_taken(card: &Device, case: &Case) -> Result<bool> {
    let graph = raw(case, |_| (None, 0))?;
    Ok(card.supports(&graph, 0..graph.n_nodes())?.iter().all(|verdict| verdict.support == 1))
}

/// The normalised mean squared error; `None` if the card refuses a node.
fn run(card: &Arc<Device>, stream: &Stream, case: &Case) -> Result<Option<f64>> {
    if !is_taken(card, case)? {
        return Ok(None);
    }
    let (graph, memory) = (&case.graph, case.values(7).unwrap());
    let mut buffers: Vec<(Option<Buffer>, u32)> = Vec::new();
    for (i, def) in graph.tensors.iter().enumerate() {
        if def.view.is_some() {
            buffers.push((None, 0));
            continue;
        }
        let desc = describe(case, i);
        let buffer = card.alloc(0, card.alloc_size(0, &desc)?, 0)?;
        if let (true, Some(bytes)) = (def.kind != Kind::Computed, memory.bytes(Tensor(i as u32))) {
            buffer.write(0, bytes)?;
        }
        let layout = match def.kind {
            Kind::Weight => buffer.seal(&TensorDesc { buffer: Some(&buffer), ..desc })?.id,
            _ => 0,
        };
        buffers.push((Some(buffer), layout));
    }
    stream.compute(&raw(case, |i| (buffers[i].0.as_ref(), buffers[i].1))?)?;
    stream.synchronize()?;
    let mut expected = memory.clone();
    reference::run(graph, &mut expected).unwrap();
    let dst = graph.nodes.last().unwrap().dst;
    let owner = graph.owner(dst);
    let mut bytes = vec![0; graph.def(owner).n_bytes() as usize];
    if let Some(buffer) = &buffers[owner.0 as usize].0 {
        buffer.read(0, &mut bytes)?;
    }
    let value = |bytes: &[u8]| Value::decode(graph.def(dst), bytes);
    Ok(Some(nmse(&value(expected.bytes(owner).unwrap()), &value(&bytes))))
}

/// Σ (a - b)² / Σ a², equal infinities apart; integers must be equal.
fn nmse(expected: &Value, found: &Value) -> f64 {
    if matches!((&expected.data, &found.data), (Data::I32(_), _) | (_, Data::I32(_))) {
        return if expected == found { 0.0 } else { f64::INFINITY };
    }
    let pairs = || {
        let all = expected.floats().iter().zip(found.floats());
        all.filter(|(a, b)| a != b || a.is_finite())
    };
    let error: f64 = pairs().map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
    let size: f64 = pairs().map(|(a, _)| (*a as f64).powi(2)).sum();
    match error {
        0.0 => 0.0,
        error if error.is_nan() => f64::INFINITY,
        error => error / size,
    }
}
