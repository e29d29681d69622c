//! The runtime tests that ggml's document of its CANN backend lists, on simulated cards. Nothing here shows what a real card does.
//! That `ASCEND_RT_VISIBLE_DEVICES` is honoured is shown in `tests/tests/end_to_end/cann.rs`.

mod common;

use common::Machine;
use llmrt_abi::types::{BUFFER_DEVICE, BUFFER_HOST_PINNED};
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::{case::Case, rules, value::Value};
use llmrt_graph::{Kind, reference};
use llmrt_host::{Buffer, Device, DeviceState, NodeDesc, RawGraphBuilder, Result, Stream, TensorDesc};
use std::sync::Arc;

const QUEUES: [&str; 3] = ["now", "delay", "sync"];

/// Devices: one and many cards; no error, and no leak.
#[test]
fn one_and_many_cards_open_report_their_memory_and_close() {
    for n in [1, 2, 8] {
        let mut m = Machine::new(&format!("devices={n},memory=1g"));
        let before = m.count("aclrtSetDevice");
        assert_eq!(m.count("malloc"), 0);
        let cards = m.host().devices();
        assert_eq!(cards.len(), n);
        for card in &cards {
            card.open().unwrap();
            assert_eq!(card.state(), DeviceState::Open);
            let (free, total) = card.memory().unwrap();
            assert!(free <= total && total == 1 << 30, "{free} of {total}");
            card.stream(1).unwrap().synchronize().unwrap();
        }
        // Opened once each, whatever was called since: every set is to be reset.
        assert_eq!(m.count("aclrtSetDevice") - before, n as u64);
        drop(cards);
        assert_eq!(m.close(), n as u64, "each card is reset as often as it was set");
    }
}

/// Buffers: what was uploaded comes back, blocking and in a stream, from memory of either kind.
#[test]
fn what_is_uploaded_comes_back_blocking_and_in_stream_order() {
    for (queue, pageable) in QUEUES.iter().flat_map(|q| ["block", "snapshot", "refuse"].map(|p| (q, p))) {
        let m = Machine::new(&format!("queue={queue},pageable={pageable}"));
        let card = m.card(0);
        let kinds: Vec<_> = card.info().buffer_types.iter().map(|bt| bt.kind).collect();
        assert_eq!(kinds, [BUFFER_DEVICE, BUFFER_HOST_PINNED]);
        let stream = card.stream(1).unwrap();
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let t = TensorDesc::bytes(64, bytes.len() as u64);
        for bt in [0, 1] {
            let buffer = card.alloc(bt, 8192, 0).unwrap();
            buffer.set(&t, &bytes, 0).unwrap();
            assert_eq!(whole(&buffer, &t), bytes, "{queue}");
            buffer.set(&t, &bytes[..100], 900).unwrap();
            assert_eq!(whole(&buffer, &t)[900..1000], bytes[..100]);
            buffer.fill(64, 10, 3).unwrap();
            assert_eq!(whole(&buffer, &t)[..11], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, bytes[10]]);

            stream.set_async(&buffer, &t, Arc::from(&bytes[..]), 0).unwrap();
            let read = stream.get_async(&buffer, &t, 17, 4000).unwrap();
            assert_eq!(stream.take(read).unwrap(), bytes[17..4017], "{queue}, {pageable}");
        }
        // Between both kinds, both ways.
        let (on_card, pinned) = (card.alloc(0, 8192, 0).unwrap(), card.alloc(1, 8192, 0).unwrap());
        pinned.set(&t, &bytes, 0).unwrap();
        on_card.copy(&t, &pinned, &t).unwrap();
        pinned.fill(0, 8192, 0).unwrap();
        pinned.copy(&t, &on_card, &t).unwrap();
        assert_eq!(whole(&pinned, &t), bytes);
        assert_eq!(m.reports(), [""; 0]);
    }
}

fn whole(buffer: &Buffer, t: &TensorDesc<'_>) -> Vec<u8> {
    let mut bytes = vec![0; t.nbytes().unwrap() as usize];
    buffer.get(t, &mut bytes, 0).unwrap();
    bytes
}

/// A copy between cards waits for what makes its source: a long job in front of it proves the wait.
#[test]
fn a_copy_between_cards_waits_for_a_long_job() {
    for (queue, peers) in QUEUES.iter().flat_map(|q| [1, 0].map(|peers| (q, peers))) {
        let m = Machine::new(&format!("devices=2,queue={queue},peers={peers},memory=1g"));
        let cards = [m.card(0), m.card(1)];
        let streams = [cards[0].stream(1).unwrap(), cards[1].stream(1).unwrap()];
        let n = 1 << 16;
        let t = TensorDesc::contiguous(DType::F32, [n, 1, 1, 1]);
        let [x, sum, copy] = [0, 0, 1].map(|card| cards[card].alloc(0, 4 * n + 64, 0).unwrap());
        let ones: Vec<u8> = (0..n).flat_map(|_| 1f32.to_le_bytes()).collect();
        x.set(&t, &ones, 0).unwrap();
        sum.fill(0, 4 * n, 0).unwrap();
        // sum = sum + x, a hundred times; only the last one may be seen.
        let mut builder = RawGraphBuilder::new();
        let a = builder.tensor(&TensorDesc { buffer: Some(&x), ..t }).unwrap();
        let b = builder.tensor(&TensorDesc { buffer: Some(&sum), ..t }).unwrap();
        for _ in 0..100 {
            let (op, srcs) = (Op::Add.info(), [Some(b), Some(a)]);
            let node = NodeDesc { op: op.id, op_version: op.version, dst: b, srcs: &srcs, params: &[] };
            builder.node(&node).unwrap();
        }
        streams[0].compute(&builder.build()).unwrap();
        streams[1].copy_async(&streams[0], (&copy, &t), (&sum, &t)).unwrap();
        streams[1].synchronize().unwrap();
        let found = whole(&copy, &t);
        assert_eq!(found[..4], 100f32.to_le_bytes(), "{queue}, peers {peers}");
        assert_eq!(found[found.len() - 4..], 100f32.to_le_bytes());
        assert_eq!(m.reports(), [""; 0]);
    }
}

/// Ops: against the plain reference, with sentinels before and after every tensor.
#[test]
fn ops_agree_with_the_reference_and_write_nothing_beside_their_result() {
    for soc in ["Ascend910B3", "Ascend310P3"] {
        let m = Machine::new(&format!("soc={soc},queue=delay,memory=2g"));
        let card = m.card(0);
        let stream = card.stream(1).unwrap();
        let (mut n, mut wrong) = (0, Vec::new());
        // Every seventh case of an op: `tests/cases.rs` has them all.
        let cases = Op::ALL.iter().flat_map(|&op| rules(op).cases().into_iter().step_by(7));
        for case in cases.filter(|case| case.graph.tensors.iter().all(|t| t.n_elems() > 0)) {
            match between_sentinels(&card, &stream, &case) {
                Ok(None) => continue,
                Ok(Some(problem)) if problem.is_empty() => {}
                Ok(Some(problem)) => wrong.push(format!("{}: {problem}", case.name)),
                Err(e) => wrong.push(format!("{}: {e}", case.name)),
            }
            n += 1;
        }
        assert!(wrong.is_empty(), "{soc}: {} of {n}:\n{}", wrong.len(), wrong.join("\n"));
        assert!(n > 60, "{soc}: {n} cases");
        assert_eq!(m.reports(), [""; 0]);
    }
}

const GUARD: u64 = 512;
const SENTINEL: u8 = 0x5a;

/// What is wrong, empty if nothing is; `None` if the card does not take the case.
fn between_sentinels(card: &Arc<Device>, stream: &Stream, case: &Case) -> Result<Option<String>> {
    let (graph, mut memory) = (&case.graph, case.values(7).unwrap());
    let (mut builder, mut buffers) = (RawGraphBuilder::new(), Vec::new());
    for (i, def) in graph.tensors.iter().enumerate() {
        let desc = TensorDesc {
            nb: def.nb,
            role: def.role as u32,
            name: &def.name,
            ..TensorDesc::contiguous(def.dtype, def.ne)
        };
        let Some((owner, offset)) = def.view.map(|(t, offset)| (t.0, offset)) else {
            let n = card.alloc_size(0, &desc)?;
            let buffer = card.alloc(0, n + 2 * GUARD, 0)?;
            buffer.fill(0, n + 2 * GUARD, SENTINEL)?;
            if let (true, Some(bytes)) =
                (def.kind != Kind::Computed, memory.bytes(llmrt_graph::Tensor(i as u32)))
            {
                buffer.write(GUARD, bytes)?;
            }
            let placed = TensorDesc { buffer: Some(&buffer), offset: GUARD, ..desc };
            let layout_id = if def.kind == Kind::Weight { buffer.seal(&placed)?.id } else { 0 };
            builder.tensor(&TensorDesc { layout_id, ..placed })?;
            let n = if layout_id == 0 { def.n_bytes() } else { n };
            buffers.push(Some((buffer, n)));
            continue;
        };
        let (buffer, _) = buffers[owner as usize].as_ref().expect("an owner owns its bytes");
        let view = Some((owner, offset));
        builder.tensor(&TensorDesc { buffer: Some(buffer), offset: GUARD + offset, view, ..desc })?;
        buffers.push(None);
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
    let mut found = Vec::new();
    let dst = graph.nodes.last().unwrap().dst;
    let owner = graph.owner(dst);
    for (i, (buffer, n)) in buffers.iter().enumerate().filter_map(|(i, b)| Some((i, b.as_ref()?))) {
        let mut bytes = vec![0; buffer.size() as usize];
        buffer.read(0, &mut bytes)?;
        let (front, rest) = bytes.split_at(GUARD as usize);
        let (own, back) = rest.split_at(*n as usize);
        if front.iter().chain(back).any(|&byte| byte != SENTINEL) {
            return Ok(Some(format!("bytes beside `{}` were written", graph.tensors[i].name)));
        }
        if i == owner.0 as usize {
            found = own.to_vec();
        }
    }
    reference::run(graph, &mut memory).unwrap();
    let value = |bytes: &[u8]| Value::decode(graph.def(dst), bytes);
    let error = nmse(&value(memory.bytes(owner).unwrap()), &value(&found));
    // F16 units round the operands of products.
    let halves = card.info().arch.starts_with("Ascend310")
        || graph.tensors.iter().any(|t| t.dtype != DType::F32 && t.dtype != DType::I32);
    let limit = if halves { case.nmse.max(1e-6) } else { case.nmse };
    let problem = || format!("NMSE {error:e}, at most {limit:e}");
    Ok(Some(if error <= limit { String::new() } else { problem() }))
}

/// Σ (a - b)² / Σ a², equal infinities apart; whole numbers must be equal.
fn nmse(expected: &Value, found: &Value) -> f64 {
    if expected.ints() != found.ints() {
        return f64::INFINITY;
    }
    let (a, b) = (expected.floats(), found.floats());
    let pairs = || a.iter().zip(b).filter(|(a, b)| a != b || a.is_finite());
    let error: f64 = pairs().map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
    let size: f64 = pairs().map(|(a, _)| (*a as f64).powi(2)).sum();
    if error == 0.0 { 0.0 } else { error / size }
}
