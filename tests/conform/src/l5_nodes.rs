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
    /// Params that end before their last zeros: they mean the same.
    ShortParams,
    /// Rows of tensors and nodes with fields that this build does not know.
    LongerRows,
    /// Operands in a layout that no device made.
    Layout,
    /// A later version of the op's meaning.
    NewerVersion,
    /// Sources left out.
    NoSources,
    /// Dims and strides that make no sense.
    Shapes,
}

impl Fault {
    /// All faults.
    pub const ALL: &[Fault] = &[
        Fault::ZeroTail,
        Fault::NonZeroTail,
        Fault::ShortParams,
        Fault::LongerRows,
        Fault::Layout,
        Fault::NewerVersion,
        Fault::NoSources,
        Fault::Shapes,
    ];

    /// A sentence.
    pub fn name(self) -> &'static str {
        match self {
            Fault::ZeroTail => "longer params with a zero tail mean the same",
            Fault::NonZeroTail => "longer params with a non-zero tail are refused",
            Fault::ShortParams => "params without their last zeros mean the same",
            Fault::LongerRows => "rows of a newer host mean the same",
            Fault::Layout => "operands in an unknown layout are refused",
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
        Fault::ZeroTail => {
            same_result(session, &problem, tail(0), 0).map_err(|t| t.during("zeros added to the params"))
        }
        Fault::ShortParams => short_params(session, &problem, node),
        Fault::LongerRows => (1..=8).step_by(7).try_for_each(|n_words| {
            same_result(session, &problem, node.clone(), n_words).map_err(|t| {
                t.during(&format!("rows {} bytes longer (`tensor_stride`, `node_stride`)", 8 * n_words))
            })
        }),
        Fault::Layout => unknown_layout(&device, &problem, &node),
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

/// Fails unless a node that means the same is accepted and gives the same; `n_words` more in each row of the graph.
fn same_result(session: &mut Session, problem: &Problem, node: RawNode, n_words: usize) -> Verdict {
    let (device, stream) = (session.device()?, session.stream()?);
    let stage = Stage::new(&device, problem)?;
    let place = |t| {
        let offset = stage.places.get(&t)?.start as u64;
        Some(Place { buffer: stage.buffer.clone(), offset, layout_id: 0 })
    };
    let (mut graph, _) = raw::build(&problem.graph, &[node], &place)?;
    if n_words > 0 {
        graph = graph.with_longer_rows(n_words);
    }
    let answer = device.supports(&graph, 0..1)?[0];
    insist(answer.support != 0, || {
        format!("refused ({}), and the same node is not otherwise", Reason::from_code(answer.reason))
    })?;
    stage.upload()?;
    enqueue(&stream, &graph)?;
    let after = stage.download()?;
    let expected = problem.expected()?;
    let target = expected.bytes(problem.target()).unwrap_or_default();
    let def = problem.graph.def(problem.node().dst);
    compare::check(&compare::difference(def, target, stage.target(problem, &after)), problem.nmse)?;
    stage.check_surroundings(problem, &after)
}

/// A host that is older than a field ends the struct before it.
fn short_params(session: &mut Session, problem: &Problem, node: RawNode) -> Verdict {
    let device = session.device()?;
    let used = node.params.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1).next_multiple_of(4);
    if used >= node.params.len() {
        return lacking("its params end in no zeros");
    }
    for n in [used, (used + node.params.len()) / 2 / 4 * 4] {
        let during =
            |t: crate::outcome::Trouble| t.during(&format!("{n} of {} bytes of params", node.params.len()));
        let short = RawNode { params: node.params[..n].to_vec(), ..node.clone() };
        // What lies behind them is another node's.
        let behind = RawNode { op: 0x7fff_ffff, params: vec![0xff; 64], ..short.clone() };
        let graph = raw::unbound(&problem.graph, &[short.clone(), behind])?;
        let answer = device.supports(&graph, 0..1)?[0];
        let refused = || format!("refused ({}); what is missing is zero", Reason::from_code(answer.reason));
        insist(answer.support != 0, refused).map_err(during)?;
        same_result(session, problem, short, 0).map_err(during)?;
    }
    Ok(())
}

/// A number that no plugin gives its layouts, for one operand after the other.
fn unknown_layout(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
    const UNKNOWN: u32 = 0x7fff_1234;
    let stage = Stage::new(device, problem)?;
    let mut owners: Vec<_> = node.src.iter().flatten().map(|&t| problem.graph.owner(t)).collect();
    owners.push(problem.target());
    for odd in owners {
        let place = |t| {
            let offset = stage.places.get(&t)?.start as u64;
            let layout_id = if t == odd { UNKNOWN } else { 0 };
            Some(Place { buffer: stage.buffer.clone(), offset, layout_id })
        };
        let (graph, _) = raw::build(&problem.graph, std::slice::from_ref(node), &place)?;
        let answer = device.supports(&graph, 0..1)?[0];
        insist(answer.support == 0, || {
            format!(
                "supports said yes to an operand of layout {UNKNOWN}, which it never made; case: {}",
                problem.name
            )
        })?;
    }
    Ok(())
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
