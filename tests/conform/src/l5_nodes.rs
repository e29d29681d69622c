//! L5: what a node of an op says that the device does not know is refused; what makes no sense is answered.

use crate::compare;
use crate::l3_ops::enqueue;
use crate::outcome::{Verdict, insist, lacking};
use crate::problem::Problem;
use crate::raw::{self, RawNode};
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::{Op, Reason};
use llmrt_host::sched::bind::Place;
use llmrt_host::{Device, TensorDesc};
use std::sync::Arc;

/// What is done to a node of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Params that are longer and end in zeros: they mean the same.
    ZeroTail,
    /// Params with attributes that this build does not know.
    NonZeroTail,
    /// A later version of the op's meaning.
    NewerVersion,
    /// Sources left out.
    NoSources,
    /// Dims and strides that make no sense.
    Shapes,
}

impl Fault {
    /// All faults.
    pub const ALL: &[Fault] =
        &[Fault::ZeroTail, Fault::NonZeroTail, Fault::NewerVersion, Fault::NoSources, Fault::Shapes];

    /// A sentence.
    pub fn name(self) -> &'static str {
        match self {
            Fault::ZeroTail => "longer params with a zero tail mean the same",
            Fault::NonZeroTail => "longer params with a non-zero tail are refused",
            Fault::NewerVersion => "a newer version of the op is refused",
            Fault::NoSources => "a node without its sources is refused",
            Fault::Shapes => "operands that make no sense are answered",
        }
    }
}

/// Tries a fault on the first case of an op that the device runs.
pub fn run(session: &mut Session, op: Op, fault: Fault) -> Verdict {
    let device = session.device()?;
    let Some(problem) = first_supported(session, &device, op)? else {
        return lacking("the device runs no case of this op");
    };
    let node = RawNode::from(problem.node());
    let tail = |byte: u8| {
        let mut params = node.params.clone();
        params.resize(params.len().next_multiple_of(8) + 16, 0);
        if let Some(last) = params.last_mut() {
            *last = byte;
        }
        RawNode { params, ..node.clone() }
    };
    match fault {
        Fault::ZeroTail => zero_tail(session, &problem, tail(0)),
        Fault::NonZeroTail => {
            refused(&device, &problem, &tail(1))?;
            let mut early = tail(0);
            let n = node.params.len().next_multiple_of(8);
            early.params[n] = 0x80;
            refused(&device, &problem, &early)
        }
        Fault::NewerVersion => {
            let newer = |by: u32| RawNode { version: node.version + by, ..node.clone() };
            refused(&device, &problem, &newer(1))?;
            refused(&device, &problem, &newer(1 << 30))
        }
        Fault::NoSources => no_sources(&device, &problem, &node),
        Fault::Shapes => shapes(&device, &problem, &node),
    }
}

fn first_supported(session: &mut Session, device: &Arc<Device>, op: Op) -> Verdict<Option<Problem>> {
    for row in 0..session.cases(op).len() {
        let case = &session.cases(op)[row];
        let Some(node) = case.graph.nodes.last().map(RawNode::from) else { continue };
        let graph = raw::unbound(&case.graph, &[node])?;
        if device.supports(&graph, 0..1)?[0].support != 0 {
            return session.problem(op, row).map(Some);
        }
    }
    Ok(None)
}

/// Fails unless the device says no to a node, with a reason.
pub fn refused(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
    let graph = raw::unbound(&problem.graph, std::slice::from_ref(node))?;
    let answer = device.supports(&graph, 0..1)?[0];
    insist(answer.support == 0, || {
        let n = node.params.len();
        format!(
            "supports said yes to op {} version {} with {n} bytes of params and {} sources; case: {}",
            node.op,
            node.version,
            node.src.len(),
            problem.name
        )
    })?;
    insist(answer.reason != Reason::None.code(), || "it was refused without a reason".into())
}

fn zero_tail(session: &mut Session, problem: &Problem, node: RawNode) -> Verdict {
    let (device, stream) = (session.device()?, session.stream()?);
    let stage = Stage::new(&device, problem)?;
    let place = |t| {
        let offset = stage.places.get(&t)?.start as u64;
        Some(Place { buffer: stage.buffer.clone(), offset, layout_id: 0 })
    };
    let (graph, _) = raw::build(&problem.graph, &[node], &place)?;
    let answer = device.supports(&graph, 0..1)?[0];
    insist(answer.support != 0, || {
        format!("refused ({}); without the zeros it is not", Reason::from_code(answer.reason))
    })?;
    stage.upload()?;
    enqueue(&stream, &graph)?;
    let after = stage.download()?;
    let expected = problem.expected()?;
    let target = expected.bytes(problem.target()).unwrap_or_default();
    let def = problem.graph.def(problem.node().dst);
    compare::check(&compare::difference(def, target, stage.target(problem, &after)), problem.nmse)
}

fn no_sources(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
    let min = problem.node().op.info().min_src as usize;
    if min == 0 {
        return lacking("the op needs no source");
    }
    for n in 0..min {
        refused(device, problem, &RawNode { src: node.src[..n].to_vec(), ..node.clone() })?;
        let mut left_out = node.src.clone();
        left_out[n] = None;
        refused(device, problem, &RawNode { src: left_out, ..node.clone() })?;
    }
    Ok(())
}

/// Spoils dims and strides.
type Change = fn(&mut [u64; 4], &mut [u64; 4]);

/// Any answer will do, as long as one comes.
fn shapes(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
    const HUGE: u64 = 1 << 40;
    let changes: [Change; 9] = [
        |ne, _| ne[0] = 0,
        |ne, _| ne[1] = 0,
        |ne, _| ne[3] = 0,
        |ne, _| ne[2] += 1,
        |ne, _| *ne = [1; 4],
        |ne, nb| (ne[1], nb[1]) = (HUGE, 0),
        |ne, nb| (ne[3], nb[3]) = (HUGE, 1),
        |_, nb| nb[0] += 1,
        |_, nb| nb[1] = 3,
    ];
    let operands: Vec<_> = node.src.iter().flatten().copied().chain([node.dst]).collect();
    for which in operands {
        for change in changes {
            let mut g = problem.graph.clone();
            let def = &mut g.tensors[which.0 as usize];
            change(&mut def.ne, &mut def.nb);
            // What the host itself refuses never comes to a device.
            let asked = TensorDesc { nb: def.nb, ..TensorDesc::contiguous(def.dtype, def.ne) };
            if asked.nbytes().is_err() {
                continue;
            }
            let Ok(graph) = raw::unbound(&g, std::slice::from_ref(node)) else { continue };
            let first = device.supports(&graph, 0..1)?[0];
            let second = device.supports(&graph, 0..1)?[0];
            insist(first.support == second.support, || "supports is not pure on odd operands".into())?;
        }
    }
    Ok(())
}
