//! L4: a plan computes what the graph computes: again, with other operands, and at other addresses.

use crate::l3_ops::{compute, enqueue};
use crate::outcome::{Verdict, insist, lacking};
use crate::problem::Problem;
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::{Op, Reason, types as c};
use llmrt_host::{BackendPlan, Stream};

/// Replays a case of an op.
pub fn run(session: &mut Session, op: Op, row: usize) -> Verdict {
    let problem = session.problem(op, row)?;
    let (device, stream) = (session.device()?, session.stream()?);
    let mut stage = Stage::new(&device, &problem)?;
    let answer = device.supports(&stage.graph, 0..1)?[0];
    if answer.support == 0 {
        return lacking(format!("supports: {}", Reason::from_code(answer.reason)));
    }
    let expected = compute(&stream, &stage)?;
    let plan = stream.plan(stage.graph.clone())?;
    for n in 1..4 {
        let found = replay(&stream, &stage, &plan)?;
        same(&stage, &problem, &expected, &found, &format!("run {n} of the plan"))?;
    }

    // Other bytes in the same places.
    let seed = session.options.seed + 1;
    let other = match session.cases(op).get(row) {
        Some(case) => Problem::of_case(case, seed)?,
        None => return lacking("no such case"),
    };
    stage.set_operands(&other.given);
    let found = replay(&stream, &stage, &plan)?;
    let expected = compute(&stream, &stage)?;
    same(&stage, &problem, &expected, &found, "the plan with other operands")?;

    // The same graph in other memory.
    let moved = device.alloc(0, stage.image.len() as u64, c::USAGE_COMPUTE)?;
    let mut graph = stage.graph.clone();
    for (t, &row) in &stage.rows {
        let owner = problem.graph.owner(*t);
        let offset = problem.graph.def(*t).view.map_or(0, |(_, offset)| offset);
        graph.bind(row, &moved, stage.places[&owner].start as u64 + offset)?;
    }
    let before = stage.download()?;
    moved.write(0, &stage.image)?;
    plan.update(graph)?;
    stream.run(&plan, 3)?;
    stream.synchronize()?;
    let mut found = vec![0; stage.image.len()];
    moved.read(0, &mut found)?;
    same(&stage, &problem, &expected, &found, "the plan at other addresses")?;
    insist(stage.download()? == before, || "the plan at other addresses wrote to the old ones".into())?;

    // And back, by the graph itself.
    plan.update(stage.graph.clone())?;
    let found = replay(&stream, &stage, &plan)?;
    same(&stage, &problem, &expected, &found, "the plan back at its first addresses")?;
    drop(plan);
    stage.upload()?;
    enqueue(&stream, &stage.graph)
}

fn replay(stream: &Stream, stage: &Stage, plan: &BackendPlan) -> Verdict<Vec<u8>> {
    stage.upload()?;
    stream.run(plan, 1)?;
    stream.synchronize()?;
    stage.download()
}

fn same(stage: &Stage, problem: &Problem, expected: &[u8], found: &[u8], what: &str) -> Verdict {
    let (a, b) = (stage.target(problem, expected), stage.target(problem, found));
    insist(a == b, || {
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(0);
        format!("{what} gave other bits than compute, from byte {at} of the result on")
    })?;
    stage.check_surroundings(problem, found).map_err(|t| t.during(what))
}
