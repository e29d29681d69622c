//! L5: what is unknown to a device it refuses without harm to the rest, and a cancelled run breaks nothing. The faults
//! of single ops are in [`crate::l5_nodes`].

use crate::catalogue::Fixed;
use crate::l5_nodes::refused;
use crate::outcome::{Trouble, Verdict, insist, lacking, wrong};
use crate::raw::{self, RawNode};
use crate::session::{Session, fresh_host};
use crate::work::Chain;
use llmrt_abi::{Op, Reason, Scope, Status};

/// The cases that are not about one op.
pub const CASES: &[Fixed] = &[
    ("ops with unknown numbers are refused", unknown_ops),
    ("an unknown node changes no answer about its neighbours", unknown_among_known),
    ("options with values that make no sense are answered", odd_options),
    ("a cancelled run ends, and the stream goes on", cancelled_run),
    ("a run goes on beside a cancelled one", other_run),
    ("a large graph is given to supports in parts", parts),
];

fn unknown_ops(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let problem = session.problem(Op::Add, 0)?;
    for op in [0, 999_999, 0x7fff_ffff, 0x8000_0000, 0x8000_1234, u32::MAX] {
        let node = RawNode { op, ..RawNode::from(problem.node()) };
        refused(&device, &problem, &node)?;
        let graph = raw::unbound(&problem.graph, &[node])?;
        let reason = device.supports(&graph, 0..1)?[0].reason;
        insist(reason == Reason::Op.code(), || {
            format!("op {op} was refused for reason {}; expected op", Reason::from_code(reason))
        })?;
    }
    Ok(())
}

fn unknown_among_known(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let problem = session.problem(Op::Add, 0)?;
    let known = RawNode::from(problem.node());
    let unknown = RawNode { op: 0x7fff_ffff, ..known.clone() };
    let alone = device.supports(&raw::unbound(&problem.graph, std::slice::from_ref(&known))?, 0..1)?[0];
    let graph = raw::unbound(&problem.graph, &[known.clone(), unknown, known])?;
    let answers = device.supports(&graph, 0..3)?;
    insist(answers[1].support == 0, || "the unknown node was accepted".into())?;
    let same = answers[0].support == alone.support && answers[2].support == alone.support;
    insist(same, || "the verdicts of the known nodes beside it differ from those alone".into())
}

/// Every option that the plugin reads is given unexpected texts: long ones, none, other writing. It may
/// start or refuse to, with words; the process goes on in both cases, and the plugin starts again without them.
fn odd_options(session: &mut Session) -> Verdict {
    let read = session.host()?.options_read();
    let before = device_names(&*session.host()?);
    if read.is_empty() {
        return lacking("the plugin reads no option");
    }
    session.close();
    let values =
        ["x".repeat(100_000), String::new(), "\u{1f600}=\u{0},".repeat(300), "-1".into(), "9".repeat(40)];
    for value in &values {
        let mut options = session.options.clone();
        options.plugin_options.retain(|(key, _)| !read.contains(key));
        options.plugin_options.extend(read.iter().map(|key| (key.clone(), value.clone())));
        if let Err(Trouble::Wrong(why)) = fresh_host(&options) {
            let text = why.trim_start_matches("rejected: ").trim();
            insist(!text.is_empty(), || format!("options of {} bytes: refused without a word", value.len()))?;
        }
    }
    let after = device_names(&*session.host()?);
    insist(before == after, || format!("after odd options: devices {after:?}, before {before:?}"))
}

fn device_names(host: &llmrt_host::Host) -> Vec<String> {
    host.devices().iter().map(|d| d.name().to_string()).collect()
}

fn cancelled_run(session: &mut Session) -> Verdict {
    let (device, host) = (session.device()?, session.host()?);
    let (chain, stream) = (Chain::new(&device, 1 << 16, 16)?, device.stream(0)?);
    chain.start(1)?;
    let plan = stream.plan(chain.graph.clone())?;
    const RUN: u64 = 4711;
    host.cancel(RUN);
    let outcome = stream.run(&plan, RUN).and_then(|()| stream.synchronize());
    host.forget_run(RUN);
    if let Err(e) = outcome {
        insist(e.status() == Status::Cancelled, || format!("expected CANCELLED or success, got: {e}"))?;
        insist(e.scope() == Scope::Call, || format!("a cancelled run broke more than itself: {e}"))?;
    }
    let first = chain.start(2)?;
    stream.run(&plan, RUN + 1)?;
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, 1), "after a cancelled run")?;
    // The number may be used again once it is forgotten.
    let first = chain.start(3)?;
    stream.run(&plan, RUN)?;
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, 1), "a run with the number of a cancelled one")
}

/// `cancelled` is called for the run at hand, and again every time.
fn other_run(session: &mut Session) -> Verdict {
    let (device, host) = (session.device()?, session.host()?);
    let (chain, stream) = (Chain::new(&device, 1 << 12, 16)?, device.stream(0)?);
    let (plan, mut graph) = (stream.plan(chain.graph.clone())?, chain.graph.clone());
    const RUN: u64 = 4713;
    host.cancel(RUN);
    let mut went_on = || -> Verdict {
        let first = chain.start(1)?;
        stream.run(&plan, RUN + 1)?;
        stream.synchronize()?;
        chain.expect(&chain.b(), &chain.after(&first, 1), "a plan")?;
        let first = chain.start(2)?;
        graph.set_run_id(RUN + 2);
        stream.compute(&graph)?;
        stream.synchronize()?;
        chain.expect(&chain.b(), &chain.after(&first, 1), "a graph")
    };
    let outcome = went_on().map_err(|t| t.during("while another run is cancelled"));
    host.forget_run(RUN);
    outcome
}

fn parts(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let problem = session.problem(Op::Add, 0)?;
    let known = RawNode::from(problem.node());
    let nodes: Vec<_> = (0..600u32)
        .map(|i| RawNode { op: if i % 3 == 0 { 0x7fff_ffff } else { known.op }, ..known.clone() })
        .collect();
    let graph = raw::unbound(&problem.graph, &nodes)?;
    let whole = device.supports(&graph, 0..600)?;
    for range in [0..1, 599..600, 100..100, 7..300] {
        let part = device.supports(&graph, range.clone())?;
        for (i, (a, b)) in part.iter().zip(&whole[range.clone()]).enumerate() {
            if a.support != b.support || a.reason != b.reason {
                let at = range.start + i;
                return wrong(format!(
                    "supports is not pure: node {at} of 600 in part {range:?} and in whole"
                ));
            }
        }
    }
    Ok(())
}
