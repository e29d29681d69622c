//! L5: parts of a node that are unknown to the device are refused; nonsense gets a verdict.

use crate::l5_versions::{same_result, short_params, unknown_layout};
use crate::outcome::{Verdict, insist, lacking};
use crate::problem::Problem;
use crate::raw::{self, RawNode};
use crate::session::Session;
use llmrt_abi::{Op, Reason};
use llmrt_host::{Device, TensorDesc};
use std::sync::Arc;

/// What is done to a node of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Params that are longer and end in zeros: they mean the same.
    ZeroTail,
    /// Params with attributes that are unknown to this build.
    NonZeroTail,
    /// Params that end before their last zeros: they mean the same.
    ShortParams,
    /// Rows of tensors and nodes with fields that are unknown to this build.
    LongerRows,
    /// Operands in a layout that no device made.
    Layout,
    /// A later version of the op's meaning.
    NewerVersion,
    /// Sources left out.
    NoSources,
    /// A source past the op's last one: an optional source of a later minor.
    ExtraSource,
    /// `NO_TENSOR` rows past the present sources, as a host of a later minor writes them: they mean the same.
    AbsentSources,
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
        Fault::ExtraSource,
        Fault::AbsentSources,
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
            Fault::ExtraSource => "a source that this version of the op does not have is refused",
            Fault::AbsentSources => "sources left out at the end mean the same",
            Fault::Shapes => "operands that make no sense get a verdict",
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
        Fault::ExtraSource => extra_source(&device, &problem, &node),
        Fault::AbsentSources => absent_sources(session, &problem, &node),
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

/// Fails unless the device refuses a node, with a reason.
pub fn refused(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
    let graph = raw::unbound(&problem.graph, std::slice::from_ref(node))?;
    let answer = device.supports(&graph, 0..1)?[0];
    insist(answer.support == 0, || {
        let n = node.params.len();
        format!(
            "supports accepted op {} version {} with {n} bytes of params and {} sources; case: {}",
            node.op,
            node.version,
            node.src.len(),
            problem.name
        )
    })?;
    insist(answer.reason != Reason::None.code(), || "it was refused without a reason".into())
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

/// The node with `n` sources: more are left out, and of fewer the last ones are cut.
fn with_sources(node: &RawNode, n: usize) -> RawNode {
    let mut src = node.src.clone();
    src.resize(n, None);
    RawNode { src, ..node.clone() }
}

/// A present source right past the op's last one, and one after absent ones.
fn extra_source(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
    let max = problem.node().op.info().max_src as usize;
    // One that the device computes with in this node, so its dtype and layout are no reason to refuse.
    let extra = node.src.iter().flatten().next().copied().unwrap_or(node.dst);
    for n_absent in [0, 1, 5] {
        let mut longer = with_sources(node, max + n_absent);
        longer.src.push(Some(extra));
        refused(device, problem, &longer)?;
    }
    Ok(())
}

/// As many rows as the op has, and as many as a later minor might have.
fn absent_sources(session: &mut Session, problem: &Problem, node: &RawNode) -> Verdict {
    let max = problem.node().op.info().max_src as usize;
    for n in [max, max + 1, max + 5].into_iter().filter(|&n| n > node.src.len()) {
        let longer = with_sources(node, n);
        same_result(session, problem, longer, 0).map_err(|t| t.during(&format!("{n} rows of sources")))?;
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
            let desc = TensorDesc { nb: def.nb, ..TensorDesc::contiguous(def.dtype, def.ne) };
            if desc.nbytes().is_err() {
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
