//! L3: a node is checked with `supports`, run twice, and compared with its reference; nothing around it may change.

use crate::compare;
use crate::outcome::{Trouble, Verdict, insist, lacking, wrong};
use crate::problem::Problem;
use crate::raw::{self, RawNode};
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::{Reason, types as c};
use llmrt_graph::{Kind, Tensor};
use llmrt_host::sched::bind::{Place, describe};
use llmrt_host::{Device, RawGraph, Stream};
use std::sync::Arc;

/// Tests a node on the device.
pub fn run(session: &mut Session, problem: &Problem) -> Verdict {
    let (device, stream) = (session.device()?, session.stream()?);
    let free = pure_answer(&device, problem)?;
    if free.support == 0 {
        return lacking(format!("supports: {}", Reason::from_code(free.reason)));
    }
    let expected = problem.expected()?;
    let stage = Stage::new(&device, problem)?;
    same_answer(&device, &stage.graph, free, "with buffers")?;
    if device.supports(&stage.graph, 0..1)?[0].support == 0 {
        return wrong("supports accepted the node without buffers, and refused it with them");
    }
    let first = compute(&stream, &stage)?;
    let def = problem.graph.def(problem.node().dst);
    let target = expected.bytes(problem.target()).unwrap_or_default();
    compare::check(&compare::difference(def, target, stage.target(problem, &first)), problem.nmse)?;
    stage.check_surroundings(problem, &first)?;
    let second = compute(&stream, &stage)?;
    insist(stage.target(problem, &first) == stage.target(problem, &second), || {
        "two runs on equal operands gave different bits".into()
    })?;
    stage.check_surroundings(problem, &second).map_err(|t| t.during("second run"))?;
    sealed(&device, &stream, problem, target)
}

/// Uploads, runs, waits, reads back.
pub fn compute(stream: &Stream, stage: &Stage) -> Verdict<Vec<u8>> {
    stage.upload()?;
    enqueue(stream, &stage.graph)?;
    stage.download()
}

/// Runs a graph that `supports` accepted, and waits.
pub fn enqueue(stream: &Stream, graph: &RawGraph) -> Verdict {
    match stream.compute(graph).and_then(|()| stream.synchronize()) {
        Err(e) if e.is_unsupported() => wrong(format!("supports accepted it, and then: {e}")),
        other => Ok(other?),
    }
}

/// The answer to a node without buffers; fails unless it is the same again, and in a batch of equal nodes.
pub fn pure_answer(device: &Arc<Device>, problem: &Problem) -> Verdict<c::Verdict> {
    let node = RawNode::from(problem.node());
    let alone = raw::unbound(&problem.graph, std::slice::from_ref(&node))?;
    let first = device.supports(&alone, 0..1)?[0];
    check_form(&first)?;
    same_answer(device, &alone, first, "the second time")?;
    let batch = raw::unbound(&problem.graph, &[node.clone(), node.clone(), node])?;
    let answers = device.supports(&batch, 0..3)?;
    let middle = device.supports(&batch, 1..2)?[0];
    for (answer, which) in
        answers.iter().zip(["first", "second", "third"]).chain([(&middle, "second, alone,")])
    {
        insist(is_same(answer, &first), || {
            format!("supports is not pure: {} alone, {} as {which} of three", shown(&first), shown(answer))
        })?;
    }
    Ok(first)
}

/// Whether a verdict is one that the ABI defines.
fn check_form(answer: &c::Verdict) -> Verdict {
    insist(answer.support <= 3, || format!("supports answered {}; expected 0 to 3", answer.support))?;
    let is_defined = Reason::TABLE.iter().any(|(_, code)| *code == answer.reason);
    insist(is_defined, || format!("supports gave reason {}, which is none", answer.reason))?;
    insist((answer.support == 0) != (answer.reason == 0), || {
        format!("supports answered {} with reason {}", answer.support, Reason::from_code(answer.reason))
    })
}

fn same_answer(device: &Arc<Device>, graph: &RawGraph, first: c::Verdict, when: &str) -> Verdict {
    let again = device.supports(graph, 0..1)?[0];
    insist(is_same(&again, &first), || {
        format!("supports is not pure: {}, and {} {when}", shown(&first), shown(&again))
    })
}

fn is_same(a: &c::Verdict, b: &c::Verdict) -> bool {
    (a.support == 0) == (b.support == 0) && a.reason == b.reason
}

fn shown(answer: &c::Verdict) -> String {
    match answer.support {
        0 => format!("no ({})", Reason::from_code(answer.reason)),
        n => format!("yes ({n})"),
    }
}

/// Each weight of the node in memory of its own, set and sealed.
pub fn seal_weights(device: &Arc<Device>, problem: &Problem) -> Verdict<Vec<(Tensor, Place)>> {
    let g = &problem.graph;
    let mut homes = Vec::new();
    for t in problem.owners().into_iter().filter(|&t| g.def(t).kind == Kind::Weight) {
        let Some(bytes) = problem.given.bytes(t).filter(|bytes| !bytes.is_empty()) else { continue };
        let desc = describe(g.def(t), None);
        let buffer = device.alloc(0, device.alloc_size(0, &desc)?, c::USAGE_WEIGHTS)?;
        buffer.set(&desc, bytes, 0)?;
        let layout = buffer.seal(&desc)?;
        homes.push((t, Place { buffer, offset: 0, layout_id: layout.id }));
    }
    Ok(homes)
}

/// Runs the node once more with its weights sealed, where that gives them another layout.
fn sealed(device: &Arc<Device>, stream: &Stream, problem: &Problem, target: &[u8]) -> Verdict {
    let g = &problem.graph;
    let homes = seal_weights(device, problem)?;
    if homes.iter().all(|(_, place)| place.layout_id == 0) {
        return Ok(());
    }
    let run = || -> Verdict {
        let stage = Stage::new(device, problem)?;
        let place = |t| match homes.iter().find(|(home, _)| *home == t) {
            Some((_, place)) => Some(place.clone()),
            None => {
                let offset = stage.places.get(&t)?.start as u64;
                Some(Place { buffer: stage.buffer.clone(), offset, layout_id: 0 })
            }
        };
        let (graph, _) = raw::build(g, &raw::nodes(g), &place)?;
        if device.supports(&graph, 0..1)?[0].support == 0 {
            return Ok(()); // it may refuse the layout, and then the host keeps the weight canonical
        }
        stage.upload()?;
        enqueue(stream, &graph)?;
        let after = stage.download()?;
        let def = g.def(problem.node().dst);
        compare::check(&compare::difference(def, target, stage.target(problem, &after)), problem.nmse)?;
        stage.check_surroundings(problem, &after)
    };
    run().map_err(|t: Trouble| t.during("with sealed weights"))
}
