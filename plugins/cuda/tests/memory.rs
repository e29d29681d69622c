//! Memory of simulated cards: scratch memory that is freed when no work uses it, copies that are done when reported
//! done, copies from card to card, and the scratch memory that verdicts name.

mod common;

use common::{Bound, Machine, bind, libraries};
use llmrt_abi::DType;
use llmrt_abi::types::CAP_P2P;
use llmrt_cuda::call;
use llmrt_cuda::sys::*;
use llmrt_graph::ops::case::Case;
use llmrt_host::{Stream, TensorDesc};
use std::ptr::null_mut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// A product of packed weights, which takes scratch memory.
fn product() -> Case {
    Case::new("a product", |g, _| {
        let w = g.weight("w", DType::Q8_0, &[64, 48], llmrt_graph::Role::Matrix);
        let x = g.input("x", DType::F32, &[64, 3]);
        g.mul_mat(w, x);
    })
}

fn computed(m: &Machine, pool: &str) -> (Stream, Bound) {
    let case = product();
    let bound = bind(&m.card(0), &case.graph, &case.values(7).unwrap()).unwrap();
    let stream = m.card(0).stream_with_pool(1, pool.parse().unwrap()).unwrap();
    stream.compute(&bound.raw).unwrap();
    (stream, bound)
}

/// Does something while another library of the process captures a stream of card 0 on a thread of its own; what the end
/// of that capture answers.
fn while_another_captures(work: impl FnOnce()) -> CUresult {
    let cuda = llmrt_cuda::library::driver(Some(libraries())).unwrap();
    let (begun, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        // SAFETY: the driver's functions as documented; what is made here is destroyed here.
        let capture = scope.spawn(|| unsafe {
            let (mut context, mut stream, mut graph) = (null_mut(), null_mut(), null_mut());
            assert_eq!(call!(cuda, cuDevicePrimaryCtxRetain(&mut context, 0)), Some(0));
            assert_eq!(call!(cuda, cuCtxSetCurrent(context)), Some(0));
            assert_eq!(
                call!(cuda, cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, 0)),
                Some(0)
            );
            let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream, mode)), Some(0));
            begun.wait();
            done.wait();
            let ended = call!(cuda, cuStreamEndCapture(stream, &mut graph));
            call!(cuda, cuGraphDestroy(graph));
            call!(cuda, cuStreamDestroy_v2(stream));
            call!(cuda, cuDevicePrimaryCtxRelease_v2(0));
            ended.unwrap()
        });
        begun.wait();
        work();
        done.wait();
        capture.join().unwrap()
    })
}

#[test]
fn scratch_memory_goes_back_without_disturbing_others_captures() {
    for pool in ["legacy", "vmm"] {
        let mut m = Machine::new("queue=late");
        let (stream, bound) = computed(&m, pool);
        let (_other, _) = computed(&m, pool);
        assert_eq!(while_another_captures(|| drop(stream)), CUDA_SUCCESS, "{pool}");
        drop((bound, _other));
        m.close();
        assert_eq!((m.count("left"), m.reports()), (0, vec![]), "{pool}");
    }
}

/// A stream that is captured is waited for when that is over: neither disturbs the other.
#[test]
fn captures_on_one_thread_go_well_while_another_gives_memory_back() {
    let m = Machine::new("queue=late");
    let (card, case) = (m.card(0), product());
    let bound = bind(&card, &case.graph, &case.values(7).unwrap()).unwrap();
    let long = Case::new("a long capture", |g, _| {
        let (a, b) = (g.input("a", DType::F32, &[4]), g.input("b", DType::F32, &[4]));
        (0..50).fold(a, |sum, _| g.add(sum, b));
    });
    let long = bind(&card, &long.graph, &long.values(7).unwrap()).unwrap();
    let before = m.count("graph");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let stream = card.stream_with_pool(1, "legacy".parse().unwrap()).unwrap();
                stream.compute(&bound.raw).unwrap();
            }
        });
        for _ in 0..40 {
            let stream = card.stream(1).unwrap();
            let plan = stream.plan(long.raw.clone()).unwrap();
            (0..3).for_each(|i| stream.run(&plan, i).unwrap());
            stream.synchronize().unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(m.count("graph") - before, 80, "every plan was captured at its second run");
    assert_eq!(m.reports(), [""; 0]);
}

/// Another stream's work is waited for before memory goes; if that wait is refused the memory stays until one succeeds.
#[test]
fn scratch_memory_stays_when_the_wait_for_its_work_fails() {
    let free_after = |wait: u64| {
        let m = Machine::new(&format!("queue=late,wait={wait}"));
        let (stream, _bound) = computed(&m, "legacy");
        let (other, _other_bound) = computed(&m, "legacy");
        drop(stream);
        let (n_waits, then) = (m.count("waits"), m.card(0).memory().unwrap().0);
        let bound = bind(&m.card(0), &product().graph, &product().values(7).unwrap()).unwrap();
        let third = m.card(0).stream_with_pool(1, "legacy".parse().unwrap()).unwrap();
        third.compute(&bound.raw).unwrap();
        other.synchronize().unwrap();
        assert_eq!(m.reports(), [""; 0]);
        (n_waits, then, m.card(0).memory().unwrap().0)
    };
    let (n_waits, free, later) = free_after(0);
    let (_, free_refused, later_refused) = free_after(n_waits);
    assert!(free_refused < free, "it stays: {free_refused}, {free}");
    assert_eq!(later_refused, later, "and is freed by a later call");
}

/// The kernel that reads the copy runs on a stream, which waits for no blocking copy.
#[test]
fn a_blocking_copy_from_the_host_has_ended_when_it_returns() {
    for pinned in [1, 0] {
        let m = Machine::new(&format!("queue=late,pinned={pinned}"));
        let case = Case::new("a sum", |g, _| {
            let (a, b) = (g.input("a", DType::F32, &[64]), g.input("b", DType::F32, &[64]));
            g.add(a, b);
        });
        let bound = bind(&m.card(0), &case.graph, &case.values(7).unwrap()).unwrap();
        let desc = TensorDesc::contiguous(DType::F32, [64, 1, 1, 1]);
        let host = m.card(0).alloc(1, 256, 0).unwrap();
        let dst = case.graph.nodes[0].dst;
        for (t, x) in [(0, 2.0f32), (1, 3.0)] {
            host.write(0, &[x.to_le_bytes(); 64].concat()).unwrap();
            bound.buffer(llmrt_graph::Tensor(t)).copy(&desc, &host, &desc).unwrap();
        }
        let stream = m.card(0).stream(1).unwrap();
        stream.compute(&bound.raw).unwrap();
        let read = stream.get_async(bound.buffer(dst), &desc, 0, 256).unwrap();
        assert_eq!(stream.take(read).unwrap(), [5.0f32.to_le_bytes(); 64].concat(), "pinned={pinned}");
        assert_eq!(m.reports(), [""; 0]);
    }
}

/// Copies 256 bytes from card 0 to card 1 three times; how many went from card to card, and through the host.
fn copies(m: &Machine) -> [u64; 2] {
    let desc = TensorDesc::contiguous(DType::F32, [64, 1, 1, 1]);
    let (from, to) = (m.card(0).alloc(0, 256, 0).unwrap(), m.card(1).alloc(0, 256, 0).unwrap());
    let (there, here) = (m.card(0).stream(1).unwrap(), m.card(1).stream(1).unwrap());
    for byte in [1, 2, 3] {
        from.fill(0, 256, byte).unwrap();
        here.copy_async(&there, (&to, &desc), (&from, &desc)).unwrap();
        let read = here.get_async(&to, &desc, 0, 256).unwrap();
        assert_eq!(here.take(read).unwrap(), [byte; 256]);
    }
    assert_eq!(m.reports(), [""; 0]);
    ["peer", "staged"].map(|name| m.count(name))
}

#[test]
fn copies_go_from_card_to_card_where_cards_reach_each_other() {
    let check = |config: &str, p2p: bool| {
        let m = Machine::new(config);
        let caps = m.host().devices().iter().map(|card| card.info().caps & CAP_P2P != 0).collect::<Vec<_>>();
        assert_eq!(caps, vec![p2p; caps.len()], "{config}");
        m
    };
    let m = check("devices=2,queue=late", true);
    assert_eq!(copies(&m), [3, 0]);
    assert_eq!(m.count("cuCtxEnablePeerAccess"), 2, "once each way");
    drop(m);
    let m = check("devices=2,queue=late,peers=0", false);
    assert_eq!(copies(&m), [0, 3]);
    assert_eq!(m.count("cuCtxEnablePeerAccess"), 0);
    drop(m);
    check("devices=1", false);
}
