//! Matrices shared by rows over simulated cards: the same numbers as on one.

mod common;

use common::Machine;
use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_gguf::writer::{self, Tables};
use llmrt_graph::{Graph, Kind, Role, Tensor};
use llmrt_host::load::{self, LoadMode, LoadOptions, ModelFiles, WeightRequest};
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::resolve::{PlacementState, Sharing, resolve};
use std::collections::HashMap;
use std::sync::Arc;

/// Two products of matrices of this type, with a function between them.
fn graph(dtype: DType) -> (Graph, Tensor, Tensor) {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[256, 3]);
    let up = g.weight("blk.0.up.weight", dtype, &[256, 160], Role::Matrix);
    let down = g.weight("blk.0.down.weight", dtype, &[160, 256], Role::Matrix);
    let h = g.mul_mat(up, x); // [160, 3]
    let h = g.silu(h);
    let y = g.mul_mat(down, h); // [256, 3]
    let y = g.add(y, x);
    g.output(y, "y");
    (g.finish().unwrap(), x, y)
}

/// The matrices as a file: small numbers that a rule gives.
fn file(dtype: DType) -> ModelFiles {
    let shapes = [("blk.0.up.weight", [256, 160]), ("blk.0.down.weight", [160, 256])];
    let mut tables = Tables::default();
    tables.metadata.set("general.architecture", "test");
    tables.tensors = shapes.map(|(name, dims)| TensorShape::new(name, dtype, &dims).unwrap()).into();
    let number = |i: usize| (i * 37 % 101) as f32 / 101.0 - 0.5;
    let bytes: Vec<u8> = match dtype {
        DType::Q8_0 => {
            // A scale of 2⁻⁸ as F16, and 32 bytes.
            let block =
                |b: usize| [0x00, 0x1c].into_iter().chain((0..32).map(move |i| (b * 7 + i * 13) as u8));
            (0..1280).flat_map(block).collect()
        }
        _ => (0..256 * 160).flat_map(|i| number(i).to_le_bytes()).collect(),
    };
    let file = writer::to_vec(&tables, &[&bytes, &bytes]).unwrap();
    ModelFiles::from_bytes("test", &file, &Default::default()).unwrap()
}

/// The result on `n_cards` cards, with one more as the device that would take what they refuse; and the runs of nodes by
/// device.
fn run(simulated: &str, n_cards: usize, split: SplitMode, dtype: DType) -> (Vec<u8>, Vec<(usize, usize)>) {
    let m = Machine::new(&format!("devices={},memory=64m,{simulated}", n_cards + 1));
    let devices: Vec<_> = (0..=n_cards).map(|i| m.card(i)).collect();
    let ((g, x, y), files) = (graph(dtype), Arc::new(file(dtype)));
    let sharing = Sharing { split, ..Sharing::default() };
    let budget = vec![Some(32 << 20); n_cards + 1];
    let known = PlacementState { budget, sharing: sharing.clone(), ..PlacementState::default() };
    let resolved = resolve(&g, &devices, &known).unwrap();
    let mut requests = Vec::new();
    for (node, &row) in resolved.graph.nodes.iter().zip(&resolved.placement.node) {
        let weights = node.src.iter().flatten().filter(|&&t| resolved.graph.def(t).kind == Kind::Weight);
        requests.extend(weights.map(|&t| WeightRequest::new(&resolved.graph, t, row, &devices[row])));
    }
    let load = LoadOptions { mode: LoadMode::Read, ..LoadOptions::default() };
    let weights = load::load(&files, &requests, load).unwrap();
    let mut executor = Executor::new(devices, files, weights, HashMap::new(), 1, (false, sharing)).unwrap();
    let input: Vec<u8> = (0..256 * 3).flat_map(|i| (i as f32 / 50.0).sin().to_ne_bytes()).collect();
    let (program, mut bytes) = (Program::new(g), Vec::new());
    for _ in 0..3 {
        executor.run(&program, &[(x, &input)]).unwrap();
        bytes = executor.output(&program, y).unwrap().into_owned();
    }
    let splits = executor.report(&program).unwrap().splits.clone();
    drop(executor);
    assert_eq!(m.reports(), [""; 0]);
    (bytes, splits)
}

#[test]
fn matrices_shared_by_rows_give_the_same_bits_as_on_one_card() {
    for dtype in [DType::F32, DType::Q8_0] {
        let (expected, splits) = run("", 1, SplitMode::Layers, dtype);
        assert_eq!(splits, [(0, 4)]);
        for simulated in ["queue=late", "queue=now,vmm=0,peers=0"] {
            let (found, splits) = run(simulated, 2, SplitMode::Rows, dtype);
            assert_eq!(found, expected, "{dtype}, {simulated}");
            assert_eq!(splits, [(1, 1), (0, 3), (1, 1), (0, 3)], "a part on each; all else on the first");
            let (found, _) = run(simulated, 3, SplitMode::Rows, dtype);
            assert_eq!(found, expected, "{dtype}, {simulated}, three cards: one matrix has too few rows");
        }
        let (found, splits) = run("", 1, SplitMode::Rows, dtype);
        assert_eq!((found, splits), (expected, vec![(0, 4)]), "with one card there is nothing to share");
    }
}
