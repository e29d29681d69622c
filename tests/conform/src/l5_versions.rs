//! L5: nodes as hosts of other versions write them, and operands as only other devices store them.

use crate::compare;
use crate::l3_ops::enqueue;
use crate::outcome::{Trouble, Verdict, insist, lacking};
use crate::problem::Problem;
use crate::raw::{self, RawNode};
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::Reason;
use llmrt_host::Device;
use llmrt_host::sched::bind::Place;
use std::sync::Arc;

/// Fails unless a node that means the same is accepted and gives the same; `n_words` more in each row of the graph.
pub fn same_result(session: &mut Session, problem: &Problem, node: RawNode, n_words: usize) -> Verdict {
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
pub fn short_params(session: &mut Session, problem: &Problem, node: RawNode) -> Verdict {
    let device = session.device()?;
    let used = node.params.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1).next_multiple_of(4);
    if used >= node.params.len() {
        return lacking("its params end in no zeros");
    }
    for n in [used, (used + node.params.len()) / 2 / 4 * 4] {
        let during = |t: Trouble| t.during(&format!("{n} of {} bytes of params", node.params.len()));
        let short = RawNode { params: node.params[..n].to_vec(), ..node.clone() };
        // The bytes after them are another node's.
        let next = RawNode { op: 0x7fff_ffff, params: vec![0xff; 64], ..short.clone() };
        let graph = raw::unbound(&problem.graph, &[short.clone(), next])?;
        let answer = device.supports(&graph, 0..1)?[0];
        let refused = || format!("refused ({}); what is missing is zero", Reason::from_code(answer.reason));
        insist(answer.support != 0, refused).map_err(during)?;
        same_result(session, problem, short, 0).map_err(during)?;
    }
    Ok(())
}

/// A number that no plugin gives its layouts, for one operand after the other.
pub fn unknown_layout(device: &Arc<Device>, problem: &Problem, node: &RawNode) -> Verdict {
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
                "supports accepted an operand of layout {UNKNOWN}, which it never made; case: {}",
                problem.name
            )
        })?;
    }
    Ok(())
}
