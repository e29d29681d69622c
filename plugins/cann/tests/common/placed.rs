//! Cases of the ops' rules on a card, against the plain references, weights sealed as a loader seals them. The tests of
//! `plugins/cuda` take this file as well.
#![allow(dead_code)]

use llmrt_abi::Op;
use llmrt_abi::types::{TENSOR_INPUT, TENSOR_STATE, TENSOR_WEIGHT};
use llmrt_graph::ops::{case::Case, value::Data, value::Value};
use llmrt_graph::{Kind, Tensor, reference};
use llmrt_host::{Buffer, Device, NodeDesc, RawGraph, RawGraphBuilder, Result, Stream, TensorDesc};
use std::sync::Arc;

/// A host takes no empty tensors.
pub fn has_empty(case: &Case) -> bool {
    case.graph.tensors.iter().any(|t| t.n_elems() == 0)
}

/// A case's graph; tensors that own their bytes are where `place` puts them: a buffer, and the layout in it.
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

/// Whether a card takes every node.
pub fn is_taken(card: &Device, case: &Case) -> Result<bool> {
    let graph = raw(case, |_| (None, 0))?;
    Ok(card.supports(&graph, 0..graph.n_nodes())?.iter().all(|verdict| verdict.support == 1))
}

/// The largest scratch memory that the verdicts of a case's nodes name.
pub fn workspace(card: &Device, case: &Case) -> Result<u64> {
    let graph = raw(case, |_| (None, 0))?;
    let verdicts = card.supports(&graph, 0..graph.n_nodes())?;
    Ok(verdicts.iter().map(|verdict| verdict.workspace).max().unwrap_or(0))
}

/// Runs `check` on every case. The cases are dealt to the cards in turn; each card has a thread and a stream of its own.
/// `check` returns what is wrong, `None` if the card refuses the case. Returns how many were taken, and what is wrong.
pub fn on_cards<'c>(
    cards: &[Arc<Device>],
    cases: impl IntoIterator<Item = &'c (Op, Case)>,
    check: impl Fn(&Arc<Device>, &Stream, Op, &Case) -> Option<Vec<String>> + Sync,
) -> (usize, Vec<String>) {
    let cases: Vec<&(Op, Case)> = cases.into_iter().collect();
    let work = |i: usize| {
        let stream = cards[i].stream(1).unwrap();
        let mine = cases.iter().skip(i).step_by(cards.len());
        let checked: Vec<Vec<String>> = mine
            .filter_map(|(op, case)| {
                let wrong = check(&cards[i], &stream, *op, case)?;
                Some(wrong.into_iter().map(|text| format!("{op}: {}: {text}", case.name)).collect())
            })
            .collect();
        checked
    };
    let checked: Vec<Vec<String>> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..cards.len())
            .map(|i| {
                s.spawn({
                    let work = &work;
                    move || work(i)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    (checked.len(), checked.into_iter().flatten().collect())
}

/// The normalised mean squared error, weights sealed as a loader seals them; `None` if the card refuses a node.
pub fn run(card: &Arc<Device>, stream: &Stream, case: &Case) -> Result<Option<f64>> {
    run_with(card, stream, case, true)
}

/// As [`run`], with weights sealed or as they are in a file.
pub fn run_with(card: &Arc<Device>, stream: &Stream, case: &Case, seal: bool) -> Result<Option<f64>> {
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
            Kind::Weight if seal => buffer.seal(&TensorDesc { buffer: Some(&buffer), ..desc })?.id,
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
