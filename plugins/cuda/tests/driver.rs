//! What the host sees of simulated cards: identities, faults, memory that runs out, plans and captures. Nothing here shows
//! what a real card does.

mod common;

use common::{Bound, Machine, bind};
use llmrt_abi::{DType, Scope, Status};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Graph, Role, Tensor, reference};
use llmrt_host::{BackendPlan, RawGraph, Stream};
use std::time::Duration;

#[test]
fn devices_report_their_names_and_properties() {
    let m = Machine::new("devices=2,memory=1g,sm=86");
    let infos: Vec<_> = m.host().devices().iter().map(|d| d.info().clone()).collect();
    let names: Vec<_> = infos.iter().map(|info| (info.name.as_str(), info.pci_id.as_str())).collect();
    assert_eq!(names, [("0", "0000:a0:00.0"), ("1", "0000:a1:00.0")]);
    assert_eq!((infos[0].arch.as_str(), infos[0].memory_total), ("sm_86", 1 << 30));
    assert_eq!((infos[0].uuid[15], infos[1].uuid[15]), (0, 1));
    assert_eq!(infos[0].description, "Simulated GPU");
}

/// ((a + b) + b) + a: several launches.
fn sums(n: u64) -> Case {
    Case::new(format!("{n} sums"), |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[n]), g.input("b", DType::F32, &[n]));
        let c = g.add(a, b);
        let d = g.add(c, b);
        g.add(d, a);
    })
}

/// A product of packed weights, which takes scratch memory.
fn product() -> Case {
    Case::new("a product", |g, _| {
        let w = g.weight("w", DType::Q8_0, &[64, 48], Role::Matrix);
        let x = g.input("x", DType::F32, &[64, 3]);
        g.mul_mat(w, x);
    })
}

/// A graph on a card, its plan, and what it computes directly.
struct Planned {
    graph: Graph,
    bound: Bound,
    plan: BackendPlan,
    dst: Tensor,
    expected: Vec<u8>,
}

impl Planned {
    fn new(m: &Machine, card: usize, stream: &Stream, case: &Case) -> Planned {
        let memory = case.values(7).unwrap();
        let bound = bind(&m.card(card), &case.graph, &memory).unwrap();
        let dst = case.graph.nodes.last().unwrap().dst;
        stream.compute(&bound.raw).unwrap();
        let expected = bound.read(stream, &case.graph, dst).unwrap();
        let plan = stream.plan(numbered(&bound)).unwrap();
        Planned { graph: case.graph.clone(), bound, plan, dst, expected }
    }

    /// Runs it over an old result, and insists on a new one.
    fn run(&self, stream: &Stream) {
        self.bound.buffer(self.dst).fill(0, self.expected.len() as u64, 0xee).unwrap();
        stream.run(&self.plan, 1).unwrap();
        assert_eq!(self.bound.read(stream, &self.graph, self.dst).unwrap(), self.expected);
    }
}

/// Graphs of one number may stand in for each other in a plan.
fn numbered(bound: &Bound) -> RawGraph {
    let mut raw = bound.raw.clone();
    raw.set_uid(1);
    raw
}

#[test]
fn nothing_is_left_when_the_host_goes() {
    let mut m = Machine::new("devices=2");
    for i in 0..2 {
        let stream = m.card(i).stream(1).unwrap();
        for case in [sums(100), product()] {
            let planned = Planned::new(&m, i, &stream, &case);
            (0..3).for_each(|_| planned.run(&stream));
        }
    }
    m.close();
    assert_eq!(m.count("left"), 0);
    assert_eq!(m.count("cuDevicePrimaryCtxRetain"), m.count("cuDevicePrimaryCtxRelease_v2"));
    assert_eq!(m.reports(), [""; 0]);
}

/// Launches and launched graphs of runs 2 to 4 of a plan.
fn three_replays(config: &str, options: &[(&str, &str)]) -> [u64; 2] {
    let m = Machine::with_options(config, options);
    let stream = m.card(0).stream(1).unwrap();
    let planned = Planned::new(&m, 0, &stream, &sums(100));
    planned.run(&stream);
    let counts = || ["launch", "graph"].map(|name| m.count(name));
    let before = counts();
    (0..3).for_each(|_| planned.run(&stream));
    let after = counts();
    assert_eq!(m.reports(), [""; 0], "{config}");
    [0, 1].map(|i| after[i] - before[i])
}

#[test]
fn a_plan_is_captured_at_its_second_run_and_takes_one_launch_from_then_on() {
    for queue in ["queue=now", "queue=late"] {
        assert_eq!(three_replays(queue, &[]), [3, 3], "{queue}: the launches of the capture, then graphs");
        assert_eq!(three_replays(queue, &[("cuda.graphs", "0")]), [9, 0], "{queue}");
    }
}

/// Of more plans than graphs are kept the one unused longest loses its graph, even while it may be running.
#[test]
fn the_plan_unused_longest_loses_its_graph() {
    let m = Machine::with_options("queue=late", &[("cuda.graphs", "2")]);
    let stream = m.card(0).stream(1).unwrap();
    let plans: Vec<_> = [10, 20, 30].map(|n| Planned::new(&m, 0, &stream, &sums(n))).into();
    let graphs_of = |runs: &[usize]| {
        let before = m.count("graph");
        runs.iter().for_each(|&i| stream.run(&plans[i].plan, 1).unwrap());
        m.count("graph") - before
    };
    assert_eq!(graphs_of(&[0, 0, 1, 1]), 2, "two are captured");
    assert_eq!(graphs_of(&[0, 2, 2]), 2, "the third takes the place of the second");
    assert_eq!(graphs_of(&[1]), 0, "which is launched kernel by kernel");
    assert_eq!(graphs_of(&[0]), 1, "and the first has its graph still");
    plans.iter().for_each(|planned| planned.run(&stream));
    assert_eq!(m.reports(), [""; 0], "none was let go while it was running");
}

#[test]
fn a_plan_goes_to_other_addresses() {
    let m = Machine::new("queue=late");
    let stream = m.card(0).stream(1).unwrap();
    let here = Planned::new(&m, 0, &stream, &sums(64));
    (0..3).for_each(|_| here.run(&stream));
    let there = bind(&m.card(0), &here.graph, &sums(64).values(7).unwrap()).unwrap();
    here.plan.update(numbered(&there)).unwrap();
    (0..3).for_each(|_| stream.run(&here.plan, 1).unwrap());
    assert_eq!(there.read(&stream, &here.graph, here.dst).unwrap(), here.expected);
    assert_eq!(m.reports(), [""; 0]);
}

/// Sums on card 0, and a stream.
fn ready(m: &Machine) -> (Stream, Bound) {
    let case = sums(100);
    let bound = bind(&m.card(0), &case.graph, &case.values(7).unwrap()).unwrap();
    (m.card(0).stream(1).unwrap(), bound)
}

#[test]
fn a_kernels_fault_is_reported_by_the_next_wait_and_sticks() {
    for n in [1, 3, 4] {
        let m = Machine::new(&format!("queue=late,fault={n}"));
        let (stream, bound) = ready(&m);
        let plan = stream.plan(bound.raw.clone()).unwrap();
        (0..3).for_each(|_| stream.run(&plan, 1).unwrap());
        let e = stream.synchronize().unwrap_err();
        let call = e.call().unwrap().clone();
        assert_eq!(
            (call.status, call.scope, call.vendor_code),
            (Status::Internal, Scope::Device, 700),
            "{e}"
        );
        for words in ["cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access"] {
            assert!(e.to_string().contains(words), "{words}: {e}");
        }
        assert!(stream.synchronize().is_err() && stream.compute(&bound.raw).is_err(), "it sticks");
    }
}

#[test]
fn a_lost_card_is_reported_as_lost() {
    let m = Machine::new("queue=late,fault=2:214");
    let (stream, bound) = ready(&m);
    stream.compute(&bound.raw).unwrap();
    let e = stream.synchronize().unwrap_err();
    let call = e.call().unwrap();
    assert_eq!((call.status, call.scope), (Status::DeviceLost, Scope::Device), "{e}");
}

#[test]
fn memory_that_runs_out_is_an_error_of_the_call_and_the_card_goes_on() {
    let m = Machine::new("memory=64m");
    let (stream, bound) = ready(&m);
    for _ in 0..3 {
        let e = m.card(0).alloc(0, 1 << 30, 0).err().unwrap();
        let call = e.call().unwrap();
        assert_eq!((call.status, call.scope), (Status::OomDevice, Scope::Call), "{e}");
        assert_eq!(call.bytes_requested, 1 << 30);
        assert!((1..64 << 20).contains(&call.bytes_available), "{e}");
        stream.compute(&bound.raw).unwrap();
        stream.synchronize().unwrap();
    }
}

/// Whichever allocation of the card fails, the error reports it and the next attempt works.
#[test]
fn every_allocation_may_be_the_one_that_fails() {
    for pool in ["legacy", "vmm"] {
        let mut n_failed = 0;
        for n in 1..12 {
            let m = Machine::with_options(&format!("oom={n}"), &[("cuda.pool", pool)]);
            let work = || -> llmrt_host::Result<()> {
                let stream = m.card(0).stream(1)?;
                let case = product();
                let bound = bind(&m.card(0), &case.graph, &case.values(7).unwrap())?;
                stream.compute(&bound.raw)?;
                stream.synchronize()
            };
            match work() {
                // A card that gives no memory when it is opened is not used; or it is an allocation of a later run.
                Err(e) if e.to_string().contains("self-test") => continue,
                Ok(()) => continue,
                Err(e) => assert!(e.is_oom(), "{pool}, allocation {n}: {e}"),
            }
            n_failed += 1;
            work().unwrap_or_else(|e| panic!("{pool}, allocation {n}, again: {e}"));
            assert_eq!(m.reports(), [""; 0]);
        }
        assert!(n_failed > 2, "{pool}: {n_failed}");
    }
}

#[test]
fn a_card_without_virtual_memory_gets_plain_memory() {
    let m = Machine::new("vmm=0");
    let (stream, bound) = ready(&m);
    stream.compute(&bound.raw).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(stream.pool_stats().unwrap().kind.to_string(), "legacy");
    let virtual_pool = m.card(0).stream_with_pool(1, "vmm".parse().unwrap());
    assert!(virtual_pool.is_err(), "requested by name it is an error");
}

#[test]
fn waits_end_when_their_work_is_done() {
    let m = Machine::new("queue=late");
    let (stream, bound) = ready(&m);
    let event = m.card(0).event().unwrap();
    assert!(event.query().unwrap(), "one never recorded was reached");
    stream.compute(&bound.raw).unwrap();
    stream.record(&event).unwrap();
    assert!(event.wait(Duration::from_secs(5)).unwrap());
    assert!(event.query().unwrap());
}

/// More keys than one part has: the parts are put together. Of narrow heads in memory of their own, which has no room to spare.
#[test]
fn attention_over_many_keys_is_split_and_right() {
    use llmrt_abi::op::AttentionParams;
    let late = "queue=late";
    let rows =
        [(0, false, 32, late), (0, true, 32, late), (700, true, 32, late), (0, false, 8, "queue=late,vmm=0")];
    for (window, sinks, dim, config) in rows {
        let case = Case::new("a decode over 1500 keys", |g, ints| {
            let q = g.input("q", DType::F32, &[dim, 2, 1]);
            let k = g.state("k", DType::F16, &[dim, 1600], Role::KCache);
            let v = g.state("v", DType::F16, &[dim, 1600], Role::VCache);
            let paged = llmrt_graph::Paged {
                block_table: g.input("block_table", DType::I32, &[100, 1]),
                seq_lens: g.input("seq_lens", DType::I32, &[1]),
                query_starts: g.input("query_starts", DType::I32, &[2]),
            };
            ints.push((paged.block_table, (0..100).map(|i| i * 7 % 100).collect()));
            ints.push((paged.seq_lens, vec![1500]));
            ints.push((paged.query_starts, vec![0, 1]));
            let sinks = sinks.then(|| g.input("sinks", DType::F32, &[2]));
            let p =
                AttentionParams { n_kv_heads: 1, block_size: 16, scale: 0.2, window, ..Default::default() };
            match sinks {
                Some(sinks) => g.attention_with_sinks(q, k, v, sinks, &paged, &p),
                None => g.attention(q, k, v, &paged, &p),
            };
        });
        let m = Machine::new(config);
        let stream = m.card(0).stream(1).unwrap();
        let mut memory = case.values(3).unwrap();
        let bound = bind(&m.card(0), &case.graph, &memory).unwrap();
        let before = m.count("launch");
        stream.compute(&bound.raw).unwrap();
        assert_eq!(m.count("launch") - before, 2, "the parts, and what puts them together");
        let dst = case.graph.nodes.last().unwrap().dst;
        let found = floats(&bound.read(&stream, &case.graph, dst).unwrap());
        reference::run(&case.graph, &mut memory).unwrap();
        let expected = floats(memory.bytes(dst).unwrap());
        let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(close, "window {window}: {found:?}\n{expected:?}");
        assert_eq!(m.reports(), [""; 0]);
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
