//! Models over simulated devices give the CPU's numbers bit for bit, whenever their queues run; and the simulator shows
//! what a missing order would do.

use llmrt_abi::{DType, Op, types as c};
use llmrt_engine::EngineOptions;
use llmrt_graph::Graph;
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::report::Report;
use llmrt_host::{
    Buffer, Device, Host, HostOptions, NodeDesc, PoolKind, RawGraph, RawGraphBuilder, Stream, TensorDesc,
};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::nmse;
use llmrt_tests::steps::{self, Core};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options reach a plugin when it is initialised, and it is initialised once at a time in a process.
static TURN: Mutex<()> = Mutex::new(());

/// A host with the CPU and simulated devices.
struct Lab {
    host: Arc<Host>,
    _turn: MutexGuard<'static, ()>,
}

/// Options as `key=value` words; `profiles` is the text of a profile file, or empty for the built-in ones.
fn lab(options: &str, profiles: &str) -> Lab {
    lab_with(options, profiles, None)
}

/// The same with scratch memory managed in this way.
fn lab_with(options: &str, profiles: &str, pool: Option<PoolKind>) -> Lab {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options: BTreeMap<String, String> = options
        .split_whitespace()
        .map(|word| word.split_once('=').unwrap())
        .map(|(key, value)| (format!("sim.{key}"), value.to_string()))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    if !profiles.is_empty() {
        std::fs::write(file.path(), profiles).unwrap();
        options.insert("sim.profiles".into(), file.path().display().to_string());
    }
    let host = Host::new(HostOptions { options, pool, n_threads: Some(2), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    host.register_builtin(llmrt_sim::query).unwrap();
    Lab { host, _turn: turn }
}

impl Lab {
    fn device(&self, name: &str) -> Arc<Device> {
        let id = if name == "cpu" { "cpu".into() } else { format!("sim:{name}") };
        self.host.device(&id).unwrap_or_else(|| panic!("no {id}"))
    }

    fn files(&self, model: &TinyLlama) -> ModelFiles {
        let dir = tempfile::tempdir().unwrap();
        ModelFiles::open(&model.write(dir.path()), &OpenOptions::default()).unwrap()
    }

    /// A core on these devices and the CPU.
    fn core(&self, devices: &[&str], model: &TinyLlama) -> Core {
        let files = self.files(model);
        let devices = devices.iter().chain(&["cpu"]).map(|name| self.device(name)).collect();
        let options = EngineOptions { n_ctx: 64, n_batch: 32, max_seqs: 2, ..EngineOptions::default() };
        steps::core(&self.host, devices, files, options).unwrap()
    }
}

/// Logits of a prompt in chunks, then of single tokens; and the report of the last step.
fn run(mut core: Core) -> (Vec<f32>, Report) {
    let (tokens, sizes) = steps::usual();
    let steps = steps::run(&mut core, &tokens, &sizes);
    (steps.logits.clone(), steps.last_report().clone())
}

/// Runs on these devices and compares with the CPU.
fn check_model(options: &str, profiles: &str, devices: &[&str], model: &TinyLlama) -> Report {
    let lab = lab(options, profiles);
    let (expected, _) = run(lab.core(&[], model));
    let (found, report) = run(lab.core(devices, model));
    let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    match report.n_legalised {
        0 => assert!(bits(&found) == bits(&expected), "{options}: {report}"),
        // Parts add up in another order than the whole; where activations are quantised that moves some by a step.
        _ => {
            let most = if model.dtype.is_quantised() { 5e-4 } else { 1e-6 };
            assert!(nmse(&found, &expected) < most, "{options}: {report}");
        }
    }
    report
}

fn check(options: &str, profiles: &str, devices: &[&str]) -> Report {
    check_model(options, profiles, devices, &TinyLlama::default())
}

/// Every way a queue may run, several seeds where there is chance in it.
const QUEUES: [&str; 7] = [
    "queue=now",
    "queue=delay:150 seed=1",
    "queue=delay:150 seed=2",
    "queue=delay:150 seed=3",
    "queue=delay:600 seed=4",
    "queue=sync",
    "queue=now latency=50 bandwidth=200000000",
];

/// Two chips that share every layer.
const TWO: &str = "
    [products]
    p2p = yes
    ops = mul_mat add
    [rest]
    p2p = yes
    ops = * -mul_mat -add";

#[test]
fn a_whole_model_on_one_simulated_device_gives_the_cpus_bits_in_every_queue_mode() {
    for queue in QUEUES {
        let report = check(queue, "", &["sim"]);
        assert_eq!((report.splits.len(), report.n_fallbacks()), (1, 0), "{queue}: {report}");
    }
}

#[test]
fn two_devices_that_pass_each_other_every_result_are_ordered_by_events_alone() {
    for queue in QUEUES {
        let report = check(queue, TWO, &["products", "rest"]);
        assert!(report.nodes[0] > 10 && report.nodes[1] > 10 && report.nodes[2] == 0, "{report}");
        assert!(report.n_copies > 10, "{report}");
    }
}

#[test]
fn devices_that_cannot_reach_each_other_copy_through_the_host() {
    for queue in ["queue=delay:150", "queue=sync"] {
        check(&format!("{queue} p2p=no"), TWO, &["products", "rest"]);
    }
}

#[test]
fn the_cpu_shares_a_graph_with_a_simulated_device_in_every_queue_mode() {
    for queue in QUEUES {
        let report = check(queue, "[some]\nops = mul_mat rms_norm set_rows", &["some"]);
        assert!(report.nodes.iter().all(|&n| n > 4), "{report}");
    }
}

#[test]
fn all_three_share_a_graph() {
    let three = "[a]\np2p=yes\nops = mul_mat\n[b]\np2p=yes\nops = add rms_norm rope";
    for queue in ["queue=delay:150 seed=7", "queue=sync"] {
        let report = check(queue, three, &["a", "b"]);
        assert!(report.nodes.iter().all(|&n| n > 4), "{report}");
    }
}

#[test]
fn two_cards_of_one_profile_are_two_devices() {
    let report = check("queue=delay:100", "[card]\ndevices = 2\nmemory = 220 KiB", &["card.0", "card.1"]);
    assert!(report.nodes.iter().all(|&n| n > 0), "{report}");
}

#[test]
fn a_device_with_little_memory_gets_a_part_of_the_model() {
    // Weights leave room for scratch memory, whatever way it is taken.
    for vmm in ["vmm=yes", "vmm=no"] {
        for kib in [150, 200, 320] {
            let report = check(vmm, &format!("[small]\nmemory = {kib} KiB"), &["small"]);
            assert!(report.nodes.iter().all(|&n| n > 0), "{vmm}, {kib} KiB: {report}");
            assert!(report.to_string().contains("its memory is too small"), "{report}");
        }
    }
}

#[test]
fn profiles_of_chips_refuse_what_the_chips_lack_with_a_reason() {
    let model = |dtype| TinyLlama { n_embd: 256, dtype, ..TinyLlama::default() };
    let text = |device: &str, dtype| check_model("", "", &[device], &model(dtype)).to_string();

    let on_310p = text("310p", DType::Q4_0);
    assert!(on_310p.contains("mul_mat on cpu instead of sim:310p: type"), "{on_310p}");
    let on_310p = text("310p", DType::BF16);
    assert!(on_310p.contains("mul_mat on cpu instead of sim:310p: type"), "{on_310p}");
    let on_310p = text("310p", DType::F16);
    assert!(!on_310p.contains("mul_mat on cpu"), "{on_310p}");

    let on_910b = text("910b", DType::Q4_K);
    assert!(on_910b.contains("mul_mat on cpu instead of sim:910b: type"), "{on_910b}");
    for dtype in [DType::F16, DType::BF16, DType::Q8_0] {
        let on_910b = text("910b", dtype);
        assert!(!on_910b.contains("mul_mat on cpu"), "{dtype}: {on_910b}");
    }
}

#[test]
fn a_result_on_its_way_is_not_overwritten_by_what_its_device_does_next() {
    // `first` goes to the other device while this one goes on, with nothing to wait for, in the same bytes of its arena.
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[4096]);
    let first = g.tanh(x);
    let away = g.relu(first);
    let mut last = g.tanh(x);
    for _ in 0..8 {
        last = g.tanh(last);
    }
    let last = g.relu(last);
    let sum = g.add(away, last);
    g.output(sum, "sum");
    let program = Program::new(g.finish().unwrap());
    let floats: Vec<f32> = (0..4096).map(|i| i as f32 / 1000.0 - 2.0).collect();
    let input: Vec<u8> = floats.iter().flat_map(|x| x.to_ne_bytes()).collect();

    let result = |queue: &str, devices: &[&str]| {
        let lab = lab(queue, "[here]\np2p = yes\nops = * -relu\n[away]\np2p = yes\nops = relu");
        let devices = devices.iter().chain(&["cpu"]).map(|name| lab.device(name)).collect();
        let files = lab.files(&TinyLlama::default());
        let weights = llmrt_host::load::load(&files, &[], LoadOptions::default()).unwrap();
        let mut executor =
            Executor::new(devices, Arc::new(files), weights, HashMap::new(), 0, Default::default()).unwrap();
        executor.run(&program, &[(x, &input)]).unwrap();
        executor.output(&program, sum).unwrap().into_owned()
    };
    let expected = result("", &[]);
    for seed in 1..8 {
        let queue = format!("queue=delay:3000 seed={seed}");
        assert!(result(&queue, &["here", "away"]) == expected, "{queue}");
    }
}

#[test]
fn operands_of_products_pass_through_scratch_memory_of_either_kind() {
    let model = TinyLlama::default();
    for (options, kind) in [("queue=delay:100", PoolKind::Vmm), ("queue=delay:100 vmm=no", PoolKind::Legacy)]
    {
        let lab = lab(options, "");
        let expected = run(lab.core(&[], &model)).0;
        let mut core = lab.core(&["sim"], &model);
        let id = core.add(steps::all_logits(&steps::usual().0)).unwrap();
        core.set_max_num_batched_tokens(7).unwrap();
        core.step().unwrap();
        let [(device, stats)] = core.runner().pool_stats().try_into().unwrap();
        assert_eq!((device.as_str(), stats.kind, stats.in_use), ("sim:sim", kind, 0));
        assert!(stats.peak > 0 && stats.mapped >= stats.peak, "{stats:?}");
        core.abort(id).unwrap();
        assert!(run(core).0 == expected, "{options}");
    }
}

#[test]
fn scratch_memory_counts_as_memory_of_the_device_until_the_stream_ends() {
    for kind in [PoolKind::Legacy, PoolKind::Vmm] {
        let lab = lab("", "");
        let device = lab.device("sim");
        let free = device.memory().unwrap().0;
        let (graph, _operands) = product(&device);
        let stream = device.stream_with_pool(1, kind).unwrap();
        for _ in 0..100 {
            stream.compute(&graph).unwrap();
        }
        stream.synchronize().unwrap();
        let stats = stream.pool_stats().unwrap();
        let n_grows = if kind == PoolKind::Vmm { 1 } else { 2 };
        assert_eq!((stats.kind, stats.in_use, stats.grows), (kind, 0, n_grows));
        assert_eq!(stats.allocs, 200, "two operands of each product");
        assert_eq!(device.memory().unwrap().0, free - stats.mapped - 4096);
        drop(stream);
        assert_eq!(device.memory().unwrap().0, free - 4096);
    }
}

#[test]
fn the_option_decides_which_pool_a_device_gets_and_a_fallback_is_reported() {
    let kind = |options: &str, pool| {
        let lab = lab_with(options, "", pool);
        let pool = lab.device("sim").pool();
        pool.map(|stats| stats.map(|stats| stats.kind)).map_err(|e| e.to_string())
    };
    assert_eq!(kind("", None), Ok(Some(PoolKind::Vmm)));
    assert_eq!(kind("", Some(PoolKind::Legacy)), Ok(Some(PoolKind::Legacy)));
    assert_eq!(kind("vmm=no", Some(PoolKind::Auto)), Ok(Some(PoolKind::Legacy)));
    let refused = kind("vmm=no", Some(PoolKind::Vmm)).unwrap_err();
    assert!(refused.contains("vmm = no"), "{refused}");
}

/// A product of two small matrices, neither a weight, on a buffer of 4096 bytes.
fn product(device: &Arc<Device>) -> (RawGraph, Buffer) {
    let buffer = device.alloc(0, 4096, c::USAGE_COMPUTE).unwrap();
    buffer.fill(0, 4096, 0).unwrap();
    let mut builder = RawGraphBuilder::new();
    let matrices = [0, 1024, 2048].map(|offset| {
        let t =
            TensorDesc { offset, buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [8, 8, 1, 1]) };
        builder.tensor(&t).unwrap()
    });
    let [w, x, y] = matrices;
    let node =
        NodeDesc { op: Op::MulMat.id(), op_version: 1, dst: y, srcs: &[Some(w), Some(x)], params: &[] };
    builder.node(&node).unwrap();
    (builder.build(), buffer)
}

/// A buffer of 64 bytes on a device, and its tensor.
fn buffer(device: &Arc<Device>) -> (Buffer, TensorDesc<'static>) {
    (device.alloc(0, 64, c::USAGE_ANY).unwrap(), TensorDesc::bytes(0, 64))
}

/// What a second stream reads of what a first one writes, with an event between them or without.
fn read_after_write(with_event: bool) -> Vec<u8> {
    let lab = lab("queue=sync", "");
    let device = lab.device("sim");
    let (memory, t) = buffer(&device);
    let [writer, reader]: [Stream; 2] = [(); 2].map(|()| device.stream(1).unwrap());
    writer.set_async(&memory, &t, Arc::from([7; 64]), 0).unwrap();
    if with_event {
        let written = device.event().unwrap();
        writer.record(&written).unwrap();
        reader.wait(&written).unwrap();
    }
    let pending = reader.get_async(&memory, &t, 0, 64).unwrap();
    let bytes = reader.take(pending).unwrap();
    writer.synchronize().unwrap();
    bytes
}

#[test]
fn a_missing_event_shows_as_poison() {
    assert_eq!(read_after_write(true), [7; 64]);
    assert_eq!(read_after_write(false), [0xff; 64]);
}

#[test]
fn events_are_reached_when_their_stream_has_come_so_far() {
    let lab = lab("queue=delay:20000 seed=5", "");
    let device = lab.device("sim");
    let (memory, t) = buffer(&device);
    let (stream, event) = (device.stream(1).unwrap(), device.event().unwrap());
    assert!(event.query().unwrap(), "never recorded");
    for _ in 0..5 {
        stream.set_async(&memory, &t, Arc::from([1; 64]), 0).unwrap();
    }
    stream.record(&event).unwrap();
    assert!(!event.query().unwrap());
    assert!(!event.wait(std::time::Duration::from_micros(10)).unwrap());
    stream.synchronize().unwrap();
    assert!(event.query().unwrap());
}

#[test]
fn tensors_are_copied_between_devices_after_the_nodes_that_compute_them() {
    let lab = lab("queue=sync", "[card]\ndevices = 2\np2p = yes");
    let [from, to] = ["card.0", "card.1"].map(|name| lab.device(name));
    let ((source, t), (target, _)) = (buffer(&from), buffer(&to));
    let (sender, receiver) = (from.stream(1).unwrap(), to.stream(1).unwrap());
    sender.set_async(&source, &t, Arc::from([9; 64]), 0).unwrap();
    receiver.copy_async(&sender, (&target, &t), (&source, &t)).unwrap();
    let pending = receiver.get_async(&target, &t, 0, 64).unwrap();
    assert_eq!(receiver.take(pending).unwrap(), [9; 64]);
}

#[test]
fn memory_is_counted_private_and_given_back() {
    let lab = lab("memory=65536", "");
    let device = lab.device("sim");
    let first = device.alloc(0, 50_000, c::USAGE_ANY).unwrap();
    assert!(first.host_ptr().is_none());
    assert_eq!(device.memory().unwrap(), (15_536, 65_536));
    let e = device.alloc(0, 16_000, c::USAGE_ANY).unwrap_err();
    let call = e.call().unwrap();
    assert!(e.is_oom(), "{e}");
    assert_eq!((call.bytes_requested, call.bytes_available), (16_000, 15_536));
    drop(first);
    assert_eq!(device.memory().unwrap().0, 65_536);
}
