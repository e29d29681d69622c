//! What goes wrong on simulated cards: faults of kernels, memory that runs out, drivers without something. Nothing here
//! shows what a real card does.

mod common;

use common::{Bound, Machine, bind};
use llmrt_abi::{DType, Scope, Status};
use llmrt_graph::ops::case::Case;
use llmrt_host::Stream;
use std::time::Duration;

/// y = x + b on card 0, and a stream.
fn sum(m: &Machine) -> (Stream, Bound) {
    let case = Case::new("a sum", |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[100]), g.input("b", DType::F32, &[100]));
        g.add(a, b);
    });
    let bound = bind(&m.card(0), &case.graph, &case.values(7).unwrap()).unwrap();
    (m.card(0).stream(1).unwrap(), bound)
}

/// The n-th kernel faults; `work` is to hear of it.
fn faulty(n: u32, queue: &str, work: impl Fn(&Stream, &Bound) -> llmrt_host::Result<()>) {
    let m = Machine::new(&format!("queue={queue},fault={n}"));
    let (stream, bound) = sum(&m);
    let e = work(&stream, &bound).unwrap_err();
    let call = e.call().unwrap().clone();
    assert_eq!(
        (call.status, call.scope, call.vendor_code),
        (Status::Internal, Scope::Device, 507_015),
        "{e}"
    );
    // Which call, what the number means, and the vendor's own words.
    for words in ["aclrtSynchronizeStream", "a kernel faulted", "was to fault"] {
        assert!(e.to_string().contains(words), "{words}: {e}");
    }
    assert!(stream.synchronize().is_err() && stream.compute(&bound.raw).is_err(), "it sticks");
}

#[test]
fn a_kernels_fault_is_reported_by_the_next_wait_and_sticks() {
    for queue in ["delay", "sync"] {
        faulty(1, queue, |stream, bound| {
            stream.compute(&bound.raw)?;
            stream.synchronize()
        });
    }
}

#[test]
fn a_fault_in_a_plan_comes_out_however_it_was_launched() {
    for n in [1, 3] {
        faulty(n, "sync", |stream, bound| {
            let plan = stream.plan(bound.raw.clone())?;
            (0..3).try_for_each(|_| stream.run(&plan, 1))?;
            stream.synchronize()
        });
    }
}

/// The host computes such a node elsewhere.
#[test]
fn what_a_first_phase_refuses_is_unsupported_at_its_node_whatever_the_code() {
    for code in [161_001, 161_002, 361_001, 561_000, 561_003, 561_103] {
        let m = Machine::new(&format!("refuse=aclnnAdd:{code}"));
        let (stream, bound) = sum(&m);
        let e = stream.compute(&bound.raw).unwrap_err();
        let call = e.call().unwrap();
        assert_eq!(
            (call.status, call.scope, call.vendor_code),
            (Status::Unsupported, Scope::Call, code),
            "{e}"
        );
        assert_eq!(call.node, Some(0), "{e}");
    }
}

#[test]
fn memory_that_runs_out_is_an_error_of_the_call_and_the_card_goes_on() {
    // Memory is HBM, or DDR.
    for soc in ["Ascend910B3", "Ascend910A", "Ascend310P3", "Ascend310B1"] {
        let m = Machine::new(&format!("memory=64m,soc={soc}"));
        let (stream, bound) = sum(&m);
        for _ in 0..3 {
            let e = m.card(0).alloc(0, 1 << 30, 0).err().unwrap();
            let call = e.call().unwrap();
            assert_eq!((call.status, call.scope), (Status::OomDevice, Scope::Call), "{soc}: {e}");
            assert_eq!(call.bytes_requested, 1 << 30);
            assert!((1..64 << 20).contains(&call.bytes_available), "{soc}: {e}");
            stream.compute(&bound.raw).unwrap();
            stream.synchronize().unwrap();
        }
    }
}

/// Whichever allocation of the card fails, the error reports it and the next attempt works.
#[test]
fn every_allocation_may_be_the_one_that_fails() {
    for pool in ["legacy", "vmm"] {
        let mut n_failed = 0;
        for n in 1..12 {
            let m = Machine::with_options("9.1", &format!("oom={n}"), &[("cann.pool", pool)]);
            let work = || -> llmrt_host::Result<()> {
                let (buffer, stream) = (m.card(0).alloc(0, 4096, 0)?, m.card(0).stream(1)?);
                buffer.fill(0, 4096, 1)?;
                let graph = common::products(&m.card(0))?;
                stream.compute(&graph.raw)?;
                stream.synchronize()
            };
            match work() {
                // A card that gives no memory when it is opened is not used.
                Err(e) if e.to_string().contains("self-test") => continue,
                Err(e) => assert!(e.is_oom(), "{pool}, allocation {n}: {e}"),
                // It is one of a later run.
                Ok(()) => continue,
            }
            n_failed += 1;
            assert_eq!(m.count("left"), 0, "{pool}, allocation {n}: tensors and executors are gone");
            work().unwrap_or_else(|e| panic!("{pool}, allocation {n}, again: {e}"));
            assert_eq!(m.reports(), [""; 0]);
        }
        assert!(n_failed > 2, "{pool}: {n_failed}");
    }
}

#[test]
fn a_driver_without_virtual_memory_gets_plain_memory() {
    let m = Machine::new("vmm=0");
    let (stream, bound) = sum(&m);
    stream.compute(&bound.raw).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(stream.pool_stats().unwrap().kind.to_string(), "legacy");
    let m2 = m.card(0).stream_with_pool(1, "vmm".parse().unwrap());
    assert!(m2.err().unwrap().to_string().contains("207000"), "requested by name it is an error");
}

/// Releases differ in what reserved addresses take; where nothing can be mapped to them, memory is plain.
#[test]
fn addresses_are_reserved_as_the_release_takes_them() {
    for (vmm, pool) in [("1", "vmm"), ("no-flags", "vmm"), ("unmappable", "legacy")] {
        let m = Machine::new(&format!("vmm={vmm}"));
        let (stream, bound) = sum(&m);
        stream.compute(&bound.raw).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(stream.pool_stats().unwrap().kind.to_string(), pool, "{vmm}");
        assert_eq!(m.reports(), [""; 0], "{vmm}");
    }
}

/// Scratch memory comes from the card it is for, in the driver's pages, and goes back.
#[test]
fn scratch_memory_is_the_cards_own_and_goes_back() {
    let m = Machine::with_options("9.1", "devices=2,queue=sync,memory=256m", &[("cann.pool", "vmm")]);
    let [first, second] = [m.card(0), m.card(1)];
    let graph = common::products(&second).unwrap();
    let free = || [first.memory().unwrap().0, second.memory().unwrap().0];
    let before = free();
    for _ in 0..3 {
        let stream = second.stream(1).unwrap();
        assert_eq!(stream.pool_stats().unwrap().kind.to_string(), "vmm");
        stream.compute(&graph.raw).unwrap();
        stream.synchronize().unwrap();
        let with_scratch = free();
        assert_eq!(with_scratch[0], before[0], "none is the other card's");
        assert!(with_scratch[1] < before[1]);
        drop(stream);
        assert_eq!(free(), before);
    }
    assert_eq!(m.reports(), [""; 0]);
}

/// A driver that takes only pinned memory in a stream's order: plain memory is copied after the work before it.
#[test]
fn plain_memory_is_copied_after_the_work_before_it() {
    let m = Machine::new("queue=sync,pageable=refuse");
    let (stream, bound) = sum(&m);
    let [b, y] = [1, 2].map(llmrt_graph::Tensor);
    let t = llmrt_host::TensorDesc::contiguous(DType::F32, [100, 1, 1, 1]);
    let ones: Vec<u8> = (0..100).flat_map(|_| 1f32.to_le_bytes()).collect();
    for x in [0, 1].map(llmrt_graph::Tensor) {
        bound.buffer(x).set(&t, &ones, 0).unwrap();
    }
    stream.compute(&bound.raw).unwrap();
    stream.set_async(bound.buffer(b), &t, vec![0; 400].into(), 0).unwrap();
    let read = stream.get_async(bound.buffer(y), &t, 0, 400).unwrap();
    assert_eq!(
        stream.take(read).unwrap()[..4],
        2f32.to_le_bytes(),
        "not 1: b was needed, and y not too early"
    );
}

#[test]
fn waits_end_when_their_time_is_over() {
    let m = Machine::new("queue=sync");
    let (stream, bound) = sum(&m);
    let event = m.card(0).event().unwrap();
    assert!(event.query().unwrap(), "one never recorded was reached");
    stream.compute(&bound.raw).unwrap();
    stream.record(&event).unwrap();
    assert!(event.wait(Duration::from_secs(5)).unwrap());
    assert!(event.query().unwrap());
}
