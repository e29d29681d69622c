//! L6: how fast a device is, case by case: time, and bytes and operations per second at its best.

use crate::l3_ops::{enqueue, seal_weights};
use crate::l6_rows::table;
use crate::outcome::{Verdict, lacking};
use crate::problem::Problem;
use crate::raw;
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::Reason;
use llmrt_graph::Tensor;
use llmrt_host::sched::bind::Place;
use llmrt_host::{BackendPlan, RawGraph, Stream};
use serde_json::json;
use std::time::{Duration, Instant};

/// Shortest time that is trusted.
const MEASURED: Duration = Duration::from_millis(300);

/// A batch is made longer until it takes this long. The best one counts: a busy machine only makes others slower.
const BATCH: Duration = Duration::from_millis(5);

/// Bytes of weights to go through before the first ones come again, where they are to come from memory: more than
/// caches hold.
const COLD: u64 = 256 << 20;

/// Most copies of a weight for that.
const MAX_COPIES: u64 = 128;

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
    let n_copies = if perf.is_cold() { (COLD / n_all.max(1)).clamp(1, MAX_COPIES) } else { 1 };
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

    let times = batches(&stream, &plans)?;
    let n_runs: usize = times.iter().map(|(n, _)| n).sum();
    let mean = times.iter().map(|(_, time)| time).sum::<f64>() / n_runs as f64;
    let best = times.iter().map(|&(n, time)| time / n as f64).fold(f64::INFINITY, f64::min);
    let per_second = |n: u64| n as f64 / best / 1e9;
    Ok(json!({
        "op": perf.op.name(), "case": perf.name(), "runs": n_runs, "mean_us": mean * 1e6, "best_us": best * 1e6,
        "gb_s": per_second(perf.n_bytes(n_all)), "gflop_s": perf.n_flops().map(per_second),
    })
    .to_string())
}

/// Runs the plans in turn, in batches; how many runs each batch had, and its seconds.
fn batches(stream: &Stream, plans: &[BackendPlan]) -> Verdict<Vec<(usize, f64)>> {
    let (mut n, mut times, started) = (1, Vec::new(), Instant::now());
    let mut next = plans.iter().cycle();
    while started.elapsed() < MEASURED {
        let begun = Instant::now();
        for plan in next.by_ref().take(n) {
            stream.run(plan, 1)?;
        }
        stream.synchronize()?;
        let time = begun.elapsed();
        times.push((n, time.as_secs_f64()));
        if time < BATCH {
            n *= 2;
        }
    }
    Ok(times)
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
