//! A graph with and without neighbouring nodes as one kernel: launches, and bits.
#![allow(dead_code)]

use crate::common::{Bound, Machine, bind};
use crate::placed;
use llmrt_abi::DType;
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::{Device, Stream};

/// Launches of a graph, and the bytes of all that its nodes write; `place` may move tensors before.
pub fn run(case: &Case, fuse: &str, place: impl Fn(&mut Bound)) -> (u64, Vec<Vec<u8>>) {
    run_on("queue=late,sm=90", case, fuse, place)
}

pub fn run_on(machine: &str, case: &Case, fuse: &str, place: impl Fn(&mut Bound)) -> (u64, Vec<Vec<u8>>) {
    let m = Machine::with_options(machine, &[("cuda.fuse", fuse)]);
    let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
    let mut bound = bind(&card, &case.graph, &case.values(7).unwrap()).unwrap();
    place(&mut bound);
    let before = m.count("launch");
    stream.compute(&bound.raw).unwrap();
    stream.synchronize().unwrap();
    let written = |t: &Tensor| matches!(case.graph.def(*t).kind, Kind::Computed | Kind::State);
    let tensors = case.graph.nodes.iter().map(|node| case.graph.owner(node.dst)).filter(written);
    let read = |t: Tensor| {
        let mut bytes = vec![0; case.graph.def(t).n_bytes() as usize];
        bound.raw.buffer(t.0).unwrap().read(bound.offset(t), &mut bytes).unwrap();
        bytes
    };
    let bytes = tensors.map(read).collect();
    assert_eq!(m.reports(), [""; 0], "{}", case.name);
    check_workspace(&card, &stream, case);
    (m.count("launch") - before, bytes)
}

/// Scratch memory that outlives a node is no more than the verdicts name, either.
pub fn check_workspace(card: &Device, stream: &Stream, case: &Case) {
    let (taken, limit) = (stream.pool_stats().unwrap().peak, placed::workspace(card, case).unwrap());
    assert!(taken <= limit, "{} takes {taken} bytes of scratch memory, its verdicts name {limit}", case.name);
}

/// So many launches, and so many without; the bits are the same.
#[track_caller]
pub fn check(launches: [u64; 2], build: impl FnOnce(&mut Graph, &mut Vec<(Tensor, Vec<i32>)>)) {
    let case = Case::new("a graph", build);
    for machine in ["queue=late,sm=90", "queue=now,sm=75"] {
        let [fused, plain] = ["1", "0"].map(|fuse| run_on(machine, &case, fuse, |_| ()));
        assert_eq!([fused.0, plain.0], launches, "{machine}");
        assert!(fused.1 == plain.1, "{machine}: other bits");
    }
}

pub fn floats(g: &mut Graph, name: &str, dims: &[u64]) -> Tensor {
    g.input(name, DType::F32, dims)
}
