//! Plans on simulated cards: planned once, captured at the second run where the chip can, and right in every case.
//! Nothing here shows what a real card does.

mod common;

use common::{Bound, Machine, bind};
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::{case::Case, rules};
use llmrt_graph::{Graph, Role, Tensor, reference};
use llmrt_host::{BackendPlan, RawGraph, Stream};

/// A graph on card 0, its plan, and what it computes.
struct Planned {
    graph: Graph,
    bound: Bound,
    plan: BackendPlan,
    dst: Tensor,
    expected: Vec<u8>,
}

impl Planned {
    fn new(m: &Machine, stream: &Stream, case: &Case) -> Planned {
        let mut memory = case.values(7).unwrap();
        let bound = bind(&m.card(0), &case.graph, &memory).unwrap();
        let plan = stream.plan(numbered(&bound)).unwrap();
        reference::run(&case.graph, &mut memory).unwrap();
        let dst = case.graph.nodes.last().unwrap().dst;
        let expected = memory.bytes(case.graph.owner(dst)).unwrap().to_vec();
        Planned { graph: case.graph.clone(), bound, plan, dst, expected }
    }

    /// Runs it over an old result, and insists on a new one.
    fn run(&self, stream: &Stream) {
        let owner = self.graph.owner(self.dst);
        self.bound.buffer(owner).fill(0, self.expected.len() as u64, 0xee).unwrap();
        stream.run(&self.plan, 1).unwrap();
        let found = self.bound.read(stream, &self.graph, self.dst).unwrap();
        assert_eq!(found, self.expected);
    }
}

/// Graphs of one number may stand in for each other in a plan.
fn numbered(bound: &Bound) -> RawGraph {
    let mut raw = bound.raw.clone();
    raw.set_uid(1);
    raw
}

/// Rows into a cache, and the cache times 2: the rows' operator works once.
fn rows_into_a_cache() -> Case {
    Case::new("rows into a cache", |g, ints| {
        let cache = g.state("cache", DType::F32, &[32, 8], Role::KCache);
        let rows = g.input("rows", DType::F32, &[32, 3]);
        let ids = g.input("ids", DType::I32, &[3]);
        ints.push((ids, vec![1, 5, 2]));
        let cache = g.set_rows(cache, rows, ids);
        g.scale(cache, 2.0);
    })
}

fn first_case(op: Op) -> Case {
    rules(op).cases().into_iter().next().unwrap()
}

/// y = x + b; sums of two numbers are exact in any order.
fn sum(n: u64) -> Case {
    Case::new(format!("{n} sums"), |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[n]), g.input("b", DType::F32, &[n]));
        g.add(a, b);
    })
}

/// The counters of runs 2 to 4 of a plan: operators planned, operators launched, graphs launched, mallocs.
fn three_replays(config: &str, options: &[(&str, &str)], case: &Case) -> [u64; 4] {
    let m = Machine::with_options("9.1", config, options);
    let stream = m.card(0).stream(1).unwrap();
    let planned = Planned::new(&m, &stream, case);
    planned.run(&stream);
    let counts = || ["plan", "launch", "graph", "malloc"].map(|name| m.count(name));
    let before = counts();
    (0..3).for_each(|_| planned.run(&stream));
    let after = counts();
    drop((planned, stream));
    assert_eq!(m.count("left"), 0, "{config}: tensors, scalars and executors are gone");
    assert_eq!(m.count("left.graphs"), 0, "{config}: captured graphs too");
    assert_eq!(m.reports(), [""; 0], "{config}");
    [0, 1, 2, 3].map(|i| after[i] - before[i])
}

#[test]
fn a_plan_is_captured_at_its_second_run_and_takes_one_launch_from_then_on() {
    for queue in ["now", "delay", "sync"] {
        let config = format!("queue={queue}");
        assert_eq!(three_replays(&config, &[], &sum(100)), [0, 1, 3, 0], "{queue}");
    }
}

#[test]
fn where_nothing_is_captured_operators_are_launched_again_and_not_planned_again() {
    assert_eq!(three_replays("soc=Ascend310P3", &[], &sum(100)), [0, 3, 0, 0]);
    assert_eq!(three_replays("", &[("cann.graphs", "0")], &sum(100)), [0, 3, 0, 0]);
}

#[test]
fn operators_that_the_library_launches_once_only_are_planned_for_each_launch_or_captured() {
    // Sums over rows have a list of dims.
    let case = first_case(Op::SumRows);
    assert_eq!(three_replays("repeatable=0,soc=Ascend310P3", &[], &case)[..3], [3, 3, 0]);
    assert_eq!(three_replays("repeatable=0", &[], &case)[..3], [1, 1, 3]);
}

/// Rows go into a cache by one operator that works once; the dozens that prepare them are planned once.
#[test]
fn a_step_that_cannot_be_repeated_leaves_the_others_repeatable() {
    let case = rows_into_a_cache();
    let [planned, launched, graphs, _] = three_replays("soc=Ascend310P3", &[], &case);
    assert_eq!((planned, graphs), (3, 0));
    assert!(launched > 3 * 10, "{launched}");
    assert_eq!(three_replays("", &[], &case)[0], 1, "captured");
}

/// What an eager run left in the library's cache cannot be made repeatable; the plan is right, and so are later ones.
#[test]
fn a_plan_after_an_eager_run_of_the_same_graph_is_right() {
    for soc in ["Ascend310P3", "Ascend910B3"] {
        let m = Machine::new(&format!("soc={soc}"));
        let stream = m.card(0).stream(1).unwrap();
        let case = rows_into_a_cache();
        let eager = bind(&m.card(0), &case.graph, &case.values(7).unwrap()).unwrap();
        stream.compute(&eager.raw).unwrap();
        stream.synchronize().unwrap();
        for _ in 0..2 {
            let planned = Planned::new(&m, &stream, &case);
            planned.run(&stream);
            let before = m.count("plan");
            (0..2).for_each(|_| planned.run(&stream));
            // The library gives the executors of its cache again and again: they cost a first phase at each run, or a capture.
            let again = m.count("plan") - before;
            assert!(if soc == "Ascend310P3" { again > 2 * 10 } else { again > 10 }, "{soc}: {again}");
        }
        assert_eq!(m.reports(), [""; 0], "{soc}");
    }
}

#[test]
fn a_card_without_streams_for_graphs_launches_operators() {
    assert_eq!(three_replays("streams=1", &[], &sum(100)), [0, 4, 0, 0]);
}

/// Of more plans than graphs are kept the one unused longest loses its graph, even while it may be running.
#[test]
fn the_plan_unused_longest_loses_its_graph() {
    let m = Machine::with_options("9.1", "queue=sync", &[("cann.graphs", "2")]);
    let stream = m.card(0).stream(1).unwrap();
    let plans: Vec<_> = [10, 20, 30].map(|n| Planned::new(&m, &stream, &sum(n))).into();
    let graphs_of = |runs: &[usize]| {
        let before = m.count("graph");
        runs.iter().for_each(|&i| stream.run(&plans[i].plan, 1).unwrap());
        m.count("graph") - before
    };
    assert_eq!(graphs_of(&[0, 0, 1, 1]), 2, "two are captured");
    assert_eq!(graphs_of(&[0, 2, 2]), 2, "the third takes the place of the second");
    assert_eq!(graphs_of(&[1]), 0, "which is launched operator by operator");
    assert_eq!(graphs_of(&[0]), 1, "and the first has its graph still");
    plans.iter().for_each(|planned| planned.run(&stream));
    drop((plans, stream));
    assert_eq!(m.count("left.graphs"), 0, "none was let go while it was running");
    assert_eq!(m.reports(), [""; 0]);
}

#[test]
fn a_plan_goes_to_other_addresses_and_back() {
    let m = Machine::new("queue=delay");
    let stream = m.card(0).stream(1).unwrap();
    let case = sum(64);
    let here = Planned::new(&m, &stream, &case);
    (0..3).for_each(|_| here.run(&stream));
    let there = bind(&m.card(0), &case.graph, &case.values(7).unwrap()).unwrap();
    here.plan.update(numbered(&there)).unwrap();
    (0..3).for_each(|_| stream.run(&here.plan, 1).unwrap());
    assert_eq!(there.read(&stream, &case.graph, here.dst).unwrap(), here.expected);
    here.plan.update(numbered(&here.bound)).unwrap();
    (0..3).for_each(|_| here.run(&stream));
    assert_eq!(m.reports(), [""; 0]);
}

/// Another thread allocates and copies all the time; a capture is about its own thread.
#[test]
fn captures_are_not_disturbed_by_other_threads() {
    let m = Machine::new("queue=delay");
    let card = m.card(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let buffer = card.alloc(0, 4096, 0).unwrap();
                buffer.write(0, &[1; 100]).unwrap();
            }
        });
        let stream = card.stream(1).unwrap();
        let before = m.count("graph");
        for n in 1..20 {
            let planned = Planned::new(&m, &stream, &sum(n));
            (0..3).for_each(|_| planned.run(&stream));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(m.count("graph") - before, 2 * 19);
    });
}

/// Streams that come and go take scratch memory and give it back, for which they wait; waiting for a card would end what is
/// captured on it.
#[test]
fn captures_are_not_disturbed_by_streams_that_come_and_go() {
    for pool in ["vmm", "legacy"] {
        let m = Machine::with_options("9.1", "queue=delay", &[("cann.pool", pool)]);
        let card = m.card(0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let n_streams = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let stream = card.stream(1).unwrap();
                    let products = common::products(&card).unwrap();
                    stream.compute(&products.raw).unwrap();
                    stream.synchronize().unwrap();
                    n_streams.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
            let stream = card.stream(1).unwrap();
            let before = m.count("graph");
            // Many operators, so that a capture takes a while.
            let plans: Vec<_> = (0..30).map(|_| Planned::new(&m, &stream, &rows_into_a_cache())).collect();
            plans.iter().for_each(|planned| (0..3).for_each(|_| planned.run(&stream)));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(m.count("graph") - before, 2 * 30, "{pool}");
        });
        assert!(n_streams.into_inner() > 0, "{pool}");
        assert_eq!(m.reports(), [""; 0], "{pool}");
    }
}

/// An operator that is planned again may request more memory: not what the plan's other steps work in.
#[test]
fn a_step_that_requests_more_memory_when_planned_again_has_it_for_itself() {
    for pool in ["vmm", "legacy"] {
        let m = Machine::with_options("9.1", "soc=Ascend310P3,grow=1", &[("cann.pool", pool)]);
        let stream = m.card(0).stream(1).unwrap();
        let planned = Planned::new(&m, &stream, &rows_into_a_cache());
        (0..4).for_each(|_| planned.run(&stream));
        drop((planned, stream));
        assert_eq!(m.reports(), [""; 0], "{pool}");
    }
}

/// What was recorded of a way that an operator then refused is not launched.
#[test]
fn a_plan_has_nothing_of_a_way_that_was_refused() {
    let mut cases = rules(Op::MulMatId).cases().into_iter();
    let case = cases.find(|case| case.name.starts_with("2 of 4 F16 experts")).unwrap();
    let launches = |config: &str, without: &'static str| {
        let m = Machine::with(without, config);
        let stream = m.card(0).stream(1).unwrap();
        let planned = Planned::new(&m, &stream, &case);
        let before = m.count("launch");
        stream.run(&planned.plan, 1).unwrap();
        stream.synchronize().unwrap();
        let refused = m.count("refused");
        let logged = m.log.lock().iter().filter(|line| line.starts_with("computed another way")).count();
        (m.count("launch") - before, refused > 0, logged)
    };
    let absent = launches("", "9.1 without aclnnGroupedMatmulV4");
    assert_eq!((absent.1, absent.2), (false, 0));
    let refused = launches("refuse=aclnnGroupedMatmulV4:561003", "9.1");
    assert_eq!(refused, (absent.0, true, 1));
}

/// A weight of each plan keeps its own memory: plans of one stream share workspaces, in turn.
#[test]
fn plans_of_one_stream_run_in_turn() {
    let m = Machine::new("queue=delay");
    let stream = m.card(0).stream(1).unwrap();
    let product = Case::new("a product", |g, _| {
        let w = g.weight("w", DType::F32, &[64, 48], Role::Matrix);
        let x = g.input("x", DType::F32, &[64, 3]);
        g.mul_mat(w, x);
    });
    let (a, b) = (Planned::new(&m, &stream, &sum(500)), Planned::new(&m, &stream, &product));
    for _ in 0..4 {
        a.run(&stream);
        stream.run(&b.plan, 1).unwrap();
        stream.run(&a.plan, 1).unwrap();
        stream.run(&b.plan, 1).unwrap();
        stream.synchronize().unwrap();
    }
    assert_eq!(m.reports(), [""; 0]);
}
