//! Every case of the ops' rules that a simulated card takes, against the plain references, weights sealed as a loader
//! seals them. Nothing here shows what a real card does.

mod common;

use common::Machine;
use llmrt_abi::types::{TENSOR_INPUT, TENSOR_STATE, TENSOR_WEIGHT};
use llmrt_abi::{DType, Op, op::AttentionParams};
use llmrt_graph::ops::{case::Case, rules, value::Data, value::Value};
use llmrt_graph::{Kind, Paged, Role, Tensor, reference};
use llmrt_host::{Buffer, Device, NodeDesc, RawGraphBuilder, Result, Stream, TensorDesc};
use std::sync::Arc;

const A2: &str = "Ascend910B3";
const P310: &str = "Ascend310P3";

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
    check(&[Op::TopK, Op::Argsort, Op::MoeWeights, Op::Argmax], 0);
}

#[test]
fn everything_else_is_right() {
    let ops: Vec<Op> = Op::ALL.iter().copied().filter(|op| op.id() >= 80).collect();
    check(&ops, 0);
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

/// At least `n` cases on a 910B, all right on both chips and in all modes of the streams.
fn check(ops: &[Op], n: usize) {
    let cases = || ops.iter().flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case)));
    check_cases(cases, n);
}

fn check_cases<I: Iterator<Item = (Op, Case)>>(cases: impl Fn() -> I, n: usize) {
    for (soc, queue) in [(A2, "delay"), (A2, "sync"), (P310, "delay"), (P310, "sync")] {
        let m = Machine::new(&format!("soc={soc},queue={queue},memory=2g"));
        let card = m.card(0);
        let stream = card.stream(1).unwrap();
        let (mut taken, mut all, mut wrong) = (0, 0, Vec::new());
        // A host takes no empty tensors.
        for (op, case) in cases().filter(|(_, case)| case.graph.tensors.iter().all(|t| t.n_elems() > 0)) {
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
    if multiplies && (soc == P310 || halves) { case.nmse.max(1e-6) } else { case.nmse }
}

/// The normalised mean squared error; `None` if the card refuses a node.
fn run(card: &Arc<Device>, stream: &Stream, case: &Case) -> Result<Option<f64>> {
    let (graph, memory) = (&case.graph, case.values(7).unwrap());
    let mut builder = RawGraphBuilder::new();
    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    let mut layouts = Vec::new();
    for (i, def) in graph.tensors.iter().enumerate() {
        let (owner, offset) = def.view.map_or((i, 0), |(t, offset)| (t.0 as usize, offset));
        let flags = match def.kind {
            Kind::Weight => TENSOR_WEIGHT,
            Kind::Input => TENSOR_INPUT,
            Kind::State => TENSOR_STATE,
            Kind::Computed => 0,
        };
        let plain = TensorDesc::contiguous(def.dtype, def.ne);
        let desc = TensorDesc { nb: def.nb, role: def.role as u32, flags, offset, name: &def.name, ..plain };
        let (mut buffer, mut layout) = (None, 0);
        if def.view.is_none() && def.n_elems() > 0 {
            let mine = card.alloc(0, card.alloc_size(0, &desc)?, 0)?;
            if let (true, Some(bytes)) = (def.kind != Kind::Computed, memory.bytes(Tensor(i as u32))) {
                mine.write(0, bytes)?;
            }
            if def.kind == Kind::Weight {
                layout = mine.seal(&TensorDesc { buffer: Some(&mine), ..desc })?.id;
            }
            buffer = Some(mine);
        }
        buffers.push(buffer);
        layouts.push(layout);
        let view = def.view.map(|(t, offset)| (t.0, offset));
        let layout_id = layouts[owner];
        builder.tensor(&TensorDesc { buffer: buffers[owner].as_ref(), view, layout_id, ..desc })?;
    }
    for node in &graph.nodes {
        let info = node.op.info();
        let srcs: Vec<_> = node.src.iter().map(|src| src.map(|t| t.0)).collect();
        let (op, op_version, dst) = (info.id, info.version, node.dst.0);
        builder.node(&NodeDesc { op, op_version, dst, srcs: &srcs, params: &node.params })?;
    }
    let raw = builder.build();
    if card.supports(&raw, 0..raw.n_nodes())?.iter().any(|verdict| verdict.support != 1) {
        return Ok(None);
    }
    stream.compute(&raw)?;
    stream.synchronize()?;
    let mut expected = memory.clone();
    reference::run(graph, &mut expected).unwrap();
    let dst = graph.nodes.last().unwrap().dst;
    let owner = graph.owner(dst);
    let mut bytes = vec![0; graph.def(owner).n_bytes() as usize];
    if let Some(buffer) = &buffers[owner.0 as usize] {
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
