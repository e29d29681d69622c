//! What the program of a step of a new shape costs, by phase.
use llmrt_engine::EngineOptions;
use llmrt_engine::memory::PlacementPlan;
use llmrt_host::load::{self, LoadMode, LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::sched::executor::{Executor, Program, arenas, compute_bytes};
use llmrt_host::sched::resolve::{PlacementState, resolve};
use llmrt_host::{Host, HostOptions};
use llmrt_models::{BatchShape, WindowBlocks};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let path = std::env::args().nth(1).expect("a model");
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query).unwrap();
    let files = Arc::new(ModelFiles::open(Path::new(&path), &OpenOptions::default()).unwrap());
    let options = EngineOptions { max_seqs: 16, n_ctx: 1024, ..EngineOptions::default() };
    let devices = host.devices();
    let placement = PlacementPlan::new(&devices, &files, &options).unwrap();
    let load = LoadOptions { mode: LoadMode::default(), check_tensors: false, progress: &mut |_| true };
    let weights = load::load(&files, &placement.weight_requests(), load).unwrap();
    let states = placement.states();
    let mut executor = Executor::new(devices.clone(), files.clone(), weights, states, 0, (false, Default::default())).unwrap();
    let shape = |n: u64| BatchShape {
        n_tokens: n, n_seqs: 1, n_outputs: 1, max_blocks: 64, n_blocks: 1025,
        windows: WindowBlocks::All, block_size: 16, n_state_slots: 35,
        k_type: llmrt_abi::DType::F16, v_type: llmrt_abi::DType::F16,
    };
    let model = &placement.model;
    let big = Program::new(model.graph(&shape(512)).unwrap().graph);
    executor.prepare(&big).unwrap();
    let mut times = [0.0; 6];
    let n = 40;
    for i in 0..n {
        let mut at = Instant::now();
        let mut lap = |phase: usize| {
            times[phase] += at.elapsed().as_secs_f64() * 1e3;
            at = Instant::now();
        };
        let graph = model.graph(&shape(100 + i)).unwrap().graph;
        lap(0);
        let graph = graph.finish().unwrap();
        lap(1);
        let program = Program::new(graph);
        lap(2);
        let resolved = resolve(program.graph(), &devices, &PlacementState::default()).unwrap();
        lap(3);
        let arenas = arenas(&resolved, &devices).unwrap();
        compute_bytes(&resolved, &devices, &arenas).unwrap();
        lap(4);
        executor.prepare(&program).unwrap();
        lap(5);
    }
    for (name, t) in ["graph", "finish", "uid", "resolve", "arenas", "prepare (with resolve and arenas)"].iter().zip(times) {
        println!("{name}: {:.3} ms", t / n as f64);
    }
}
