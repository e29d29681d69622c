//! L6: how fast a device is, case by case: mean time, bytes and operations per second.

use crate::l3_ops::{enqueue, seal_weights};
use crate::l6_rows::table;
use crate::outcome::{Verdict, lacking};
use crate::problem::Problem;
use crate::raw;
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::Reason;
use llmrt_graph::Tensor;
use llmrt_host::RawGraph;
use llmrt_host::sched::bind::Place;
use serde_json::json;
use std::time::{Duration, Instant};

/// Shortest time that is trusted.
const MEASURED: Duration = Duration::from_millis(300);

/// Bytes of weights to go through before the first ones come again, where they are to come from memory: more than
/// caches hold.
const COLD: u64 = 256 << 20;

/// Most copies of a weight for that.
const MOST_COPIES: u64 = 128;

/// Measures a row of the table; the result as JSON.
pub fn run(session: &mut Session, row: usize) -> Verdict<String> {
    let Some(perf) = table().get(row).copied() else { return lacking("no such row") };
    let (device, stream) = (session.device()?, session.stream()?);
    let case = perf.case();
    if let Some(e) = case.graph.error() {
        return Err(e.clone().into());
    }
    let problem = Problem::of_case(&case, session.options.seed)?;
    let n_all: u64 = problem.owners().iter().map(|&t| problem.graph.def(t).n_bytes()).sum();
    let n_copies = if perf.is_cold() { (COLD / n_all.max(1)).clamp(1, MOST_COPIES) } else { 1 };
    let stage = Stage::new(&device, &problem)?;
    let mut plans = Vec::new();
    for _ in 0..n_copies {
        let graph = bound(&problem, &stage, &seal_weights(&device, &problem)?)?;
        let answer = device.supports(&graph, 0..1)?[0];
        if answer.support == 0 {
            return lacking(format!("supports: {}", Reason::from_code(answer.reason)));
        }
        if plans.is_empty() {
            stage.upload()?;
            enqueue(&stream, &graph)?;
        }
        plans.push(stream.plan(graph)?);
    }

    let (mut n, mut n_runs, started) = (1, 0, Instant::now());
    let mut next = plans.iter().cycle();
    while started.elapsed() < MEASURED {
        for plan in next.by_ref().take(n) {
            stream.run(plan, 1)?;
        }
        stream.synchronize()?;
        n_runs += n;
        n = (n * 2).min(256);
    }
    let seconds = started.elapsed().as_secs_f64() / n_runs as f64;
    let per_second = |n: u64| n as f64 / seconds / 1e9;
    Ok(json!({
        "op": perf.op.name(), "case": perf.name(), "runs": n_runs, "mean_us": seconds * 1e6,
        "gb_s": per_second(perf.n_bytes(n_all)), "gflop_s": perf.n_flops().map(per_second),
    })
    .to_string())
}

/// The node with these weights, everything else on the stage.
fn bound(problem: &Problem, stage: &Stage, weights: &[(Tensor, Place)]) -> Verdict<RawGraph> {
    let place = |t| match weights.iter().find(|(weight, _)| *weight == t) {
        Some((_, place)) => Some(place.clone()),
        None => {
            let offset = stage.places.get(&t)?.start as u64;
            Some(Place { buffer: stage.buffer.clone(), offset, layout_id: 0 })
        }
    };
    Ok(raw::build(&problem.graph, &raw::nodes(&problem.graph), &place)?.0)
}
