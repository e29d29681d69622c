//! A cancel ends a run between its parts, and leaves stream and plan usable: directly, while a plan is
//! launched, while it is captured, and while its captured graphs are launched.

mod common;

use common::{Machine, bind};
use llmrt_abi::{DType, Scope, Status};
use llmrt_cann::plan::MAX_PART;
use llmrt_graph::ops::case::Case;
use llmrt_host::RawGraph;
use std::time::Duration;

const NODES: u64 = 4000;
const RUN: u64 = 4711;

/// ((a + b) + b) + …: 4000 launches.
fn chain() -> Case {
    Case::new("a chain of sums", |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[8]), g.input("b", DType::F32, &[8]));
        (0..NODES).fold(a, |sum, _| g.add(sum, b));
    })
}

/// Cancels the run after `n_before` whole ones; without a plan where `n_before` is `None`.
fn check(n_before: Option<u64>) {
    let first_slow = n_before.map_or(1, |n| n * NODES + 1);
    let m = Machine::new(&format!("queue=sync,slow={first_slow}:300"));
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

    let (outcome, at_cancel) = std::thread::scope(|scope| {
        let cancel = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            let n_kernels = m.count("kernel");
            m.host().cancel(RUN);
            n_kernels
        });
        let outcome = run(RUN);
        // What was in flight runs to its end.
        stream.synchronize().unwrap();
        (outcome, cancel.join().unwrap())
    });
    let e = outcome.unwrap_err();
    assert_eq!((e.status(), e.scope()), (Status::Cancelled, Scope::Call), "{n_before:?}: {e}");
    // Two parts were in flight, a third was enqueued, and a fourth may have ended between the count and the cancel.
    let ran = m.count("kernel") - at_cancel;
    assert!(ran <= 4 * MAX_PART as u64, "{n_before:?}: {ran} kernels ran after the cancel");

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
