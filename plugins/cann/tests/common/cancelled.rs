//! A cancel ends a run between its parts, and leaves stream and plan usable: directly, while a plan is launched, while it is
//! captured, and while its captured graphs are launched. Tests of `plugins/cuda` take this file as well; a test that includes
//! it has its simulator as `SIMULATED`.

use crate::SIMULATED;
use crate::common::{Machine, bind};
use llmrt_abi::{DType, Scope, Status};
use llmrt_graph::ops::case::Case;
use llmrt_host::RawGraph;
use std::time::Duration;

/// What is particular to a simulator.
pub struct Simulated {
    /// How work is queued, and what a slow kernel takes.
    pub queue: &'static str,
    pub slow_micros: u64,
    /// The counter of kernels that ran.
    pub counter: &'static str,
    /// Whether the counter can be read while a kernel runs; else kernels are counted from the start of the run.
    pub counts_in_runs: bool,
    pub n_nodes: u64,
    /// Kernels that may run after the count.
    pub max_kernels: u64,
}

const RUN: u64 = 4711;

/// ((a + b) + b) + …: a launch each.
fn chain() -> Case {
    Case::new("a chain of sums", |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[8]), g.input("b", DType::F32, &[8]));
        (0..SIMULATED.n_nodes).fold(a, |sum, _| g.add(sum, b));
    })
}

/// Cancels the run after `n_before` whole ones; without a plan where `n_before` is `None`.
fn check(n_before: Option<u64>) {
    let first_slow = n_before.map_or(1, |n| n * SIMULATED.n_nodes + 1);
    let Simulated { queue, slow_micros, counter, .. } = SIMULATED;
    let m = Machine::new(&format!("queue={queue},slow={first_slow}:{slow_micros}"));
    let (card, case) = (m.card(0), chain());
    let stream = card.stream(1).unwrap();
    let bound = bind(&card, &case.graph, &case.values(7).unwrap()).unwrap();
    let dst = case.graph.nodes.last().unwrap().dst;
    let numbered = |run_id| -> RawGraph {
        let mut raw = bound.raw.clone();
        raw.set_uid(1);
        raw.set_run_id(run_id);
        raw
    };
    let plan = n_before.map(|_| stream.plan(numbered(0)).unwrap());
    let run = |run_id| match &plan {
        Some(plan) => stream.run(plan, run_id).and_then(|()| stream.synchronize()),
        None => stream.compute(&numbered(run_id)).and_then(|()| stream.synchronize()),
    };
    (0..n_before.unwrap_or(0)).for_each(|_| run(1).unwrap());

    let at_start = m.count(counter);
    let (outcome, counted) = std::thread::scope(|scope| {
        let cancel = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            let counted = if SIMULATED.counts_in_runs { m.count(counter) } else { at_start };
            m.host().cancel(RUN);
            counted
        });
        let outcome = run(RUN);
        // What was in flight runs to its end.
        stream.synchronize().unwrap();
        (outcome, cancel.join().unwrap())
    });
    let e = outcome.unwrap_err();
    assert_eq!((e.status(), e.scope()), (Status::Cancelled, Scope::Call), "{n_before:?}: {e}");
    let (ran, max) = (m.count(counter) - counted, SIMULATED.max_kernels);
    assert!(ran <= max, "{n_before:?}: {ran} kernels ran, expected at most {max}");

    assert!(run(RUN).is_err(), "a run that was cancelled before it started");
    m.host().forget_run(RUN);
    run(RUN).unwrap();
    let found = bound.read(&stream, &case.graph, dst).unwrap();
    let mut memory = case.values(7).unwrap();
    llmrt_graph::reference::run(&case.graph, &mut memory).unwrap();
    assert_eq!(found, memory.bytes(dst).unwrap(), "{n_before:?}");
    assert_eq!(m.reports(), [""; 0], "{n_before:?}");
}

#[test]
fn a_graph_is_cancelled_between_its_nodes() {
    check(None);
}

#[test]
fn a_plan_is_cancelled_between_its_launches() {
    check(Some(0));
}

#[test]
fn a_plan_is_cancelled_when_it_was_captured_just_now() {
    check(Some(1));
}

#[test]
fn captured_graphs_are_cancelled_between_their_parts() {
    check(Some(2));
}
