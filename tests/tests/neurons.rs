//! Networks whose neurons are divided among simulated devices and the CPU give the logits of whole ones, whichever neurons each
//! device has and whenever its queue runs.

use llmrt_abi::DType;
use llmrt_engine::EngineOptions;
use llmrt_engine::core::Runner;
use llmrt_engine::memory::{self, PlacementPlan};
use llmrt_engine::neurons::{IndexUse, NeuronOptions};
use llmrt_graph::rows::NeuronSplit;
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_host::sched::report::Report;
use llmrt_host::{Device, Host, HostOptions, Outcome};
use llmrt_models::{SparseMode, SparseOptions};
use llmrt_sparse::index::{LayerIndex, NeuronIndex};
use llmrt_sparse::stats::{self, SparseFile, Split};
use llmrt_sparse::{Counts, ModelId};
use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::compile::{Language, compile};
use llmrt_tests::fixtures::{counted_llama, fixture, fixtures};
use llmrt_tests::{ascend, nmse, nvidia, steps};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options reach a plugin when it is initialised, and it is initialised once at a time in a process.
static TURN: Mutex<()> = Mutex::new(());

/// Layers and neurons of the fixtures.
const N_LAYERS: usize = 2;
const N_FF: u32 = 1024;

struct Lab {
    host: Arc<Host>,
    _turn: MutexGuard<'static, ()>,
}

/// The CPU and two simulated devices.
fn lab(options: &str) -> Lab {
    lab_of(options, "")
}

/// Devices of another profile.
fn lab_of(options: &str, profile: &str) -> Lab {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pairs = options.split_whitespace().map(|word| word.split_once('=').unwrap());
    let mut options: BTreeMap<String, String> =
        pairs.map(|(key, value)| (format!("sim.{key}"), value.to_string())).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("[sim]\ndevices = 2\np2p = yes\n{profile}\n")).unwrap();
    options.insert("sim.profiles".into(), file.path().display().to_string());
    let host = Host::new(HostOptions { options, n_threads: Some(2), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    host.register_builtin(llmrt_sim::query).unwrap();
    Lab { host, _turn: turn }
}

impl Lab {
    fn device(&self, id: &str) -> Arc<Device> {
        self.host.device(id).unwrap_or_else(|| panic!("no {id}"))
    }

    /// The first simulated device and the CPU.
    fn pair(&self) -> Vec<Arc<Device>> {
        ["sim:sim.0", "cpu"].map(|name| self.device(name)).into()
    }

    /// Logits of the fixtures' tokens on these devices and the CPU, and the report of the last step.
    fn run(
        &self,
        model: &Path,
        n_devices: usize,
        mode: SparseMode,
        split: Option<NeuronSplit>,
    ) -> (Vec<f32>, Report) {
        self.run_on(model, &["sim:sim.0", "sim:sim.1"][..n_devices], mode, split)
    }

    /// The same on devices of these ids and the CPU.
    fn run_on(
        &self,
        model: &Path,
        ids: &[&str],
        mode: SparseMode,
        split: Option<NeuronSplit>,
    ) -> (Vec<f32>, Report) {
        let devices = ids.iter().chain(&["cpu"]).map(|name| self.device(name)).collect();
        let options = EngineOptions {
            n_ctx: 64,
            n_batch: 32,
            k_type: DType::F32,
            v_type: DType::F32,
            sparse: SparseOptions { mode, ..SparseOptions::default() },
            neurons: NeuronOptions { split: split.map(Arc::new), ..NeuronOptions::default() },
            ..EngineOptions::default()
        };
        let mut core = steps::core(&self.host, devices, files(model), options).unwrap();
        let (tokens, sizes) = steps::usual();
        let steps = steps::run(&mut core, &tokens, &sizes);
        (steps.logits.clone(), steps.last_report().clone())
    }
}

fn files(model: &Path) -> ModelFiles {
    ModelFiles::open(model, &OpenOptions::default()).unwrap()
}

/// Each neuron on the device that a function of its number gives; the last one is the CPU.
fn split(n_devices: usize, device_of: impl Fn(u32) -> usize) -> NeuronSplit {
    let list = |d| (0..N_FF).filter(|&i| device_of(i) == d).collect::<Arc<[u32]>>();
    let layer = (0..=n_devices).map(list).collect::<Vec<_>>();
    NeuronSplit { layers: (0..N_LAYERS).map(|i| (i, layer.clone())).collect() }
}

/// Divisions of one simulated device and the CPU, then of two.
fn divisions() -> Vec<(&'static str, usize, NeuronSplit)> {
    let random = |i: u32| (i.wrapping_mul(2_654_435_761) >> 16) as usize;
    vec![
        ("all on the CPU", 1, split(1, |_| 1)),
        ("all on the device", 1, split(1, |_| 0)),
        ("even and odd", 1, split(1, |i| i as usize % 2)),
        ("random", 1, split(1, |i| random(i) % 2)),
        ("the first third", 1, split(1, |i| usize::from(i >= N_FF / 3))),
        ("one on the device", 1, split(1, |i| usize::from(i != 77))),
        ("one on the CPU", 1, split(1, |i| usize::from(i == 77))),
        ("three devices", 2, split(2, |i| random(i) % 3)),
        ("two devices and none on the CPU", 2, split(2, |i| i as usize % 2)),
    ]
}

fn models(ends: &[&str]) -> Vec<PathBuf> {
    let Some(dir) = fixtures("powerinfer") else { return Vec::new() };
    ends.iter().filter_map(|end| fixture(&dir, &format!("{end}.powerinfer.gguf"))).collect()
}

#[test]
fn logits_are_those_of_whole_networks_for_every_division() {
    let lab = lab("");
    for model in models(&["llama", "bamboo", "falcon", "opt", "llama.q4_0", "opt.q4_0"]) {
        for mode in [SparseMode::Predict, SparseMode::Exact, SparseMode::Off] {
            let (expected, _) = lab.run(&model, 0, mode, None);
            for (name, n_devices, split) in divisions() {
                let (found, report) = lab.run(&model, n_devices, mode, Some(split));
                let error = nmse(&found, &expected);
                println!("{} {mode:?} {name}: NMSE {error:.1e}", model.file_name().unwrap().display());
                // Activations are quantised for such weights, so that the order of a sum may move one by a step.
                let limit = if model.to_string_lossy().contains("q4_0") { 1e-4 } else { 1e-9 };
                assert!(error <= limit, "{} {mode:?} {name}: NMSE {error}\n{report}", model.display());
                assert_eq!(report.n_fallbacks(), 0, "{report}");
                let neurons: u64 = report.neurons.iter().map(|(n, _)| n).sum();
                assert_eq!(neurons, N_LAYERS as u64 * u64::from(N_FF), "{report}");
            }
        }
    }
}

/// Devices that lack the ops of sparse networks get what these are made of, each for its own neurons.
#[test]
fn parts_of_devices_without_the_ops_are_taken_apart_on_them() {
    let lab = lab_of("", "ops = * -mul_mat_sparse -mul_mat_t -glu");
    for model in models(&["llama", "opt"]) {
        let (expected, _) = lab.run(&model, 0, SparseMode::Predict, None);
        let of_three = split(2, |i| i as usize % 3);
        let (found, report) = lab.run(&model, 2, SparseMode::Predict, Some(of_three));
        let error = nmse(&found, &expected);
        assert!(error <= 1e-9, "{}: NMSE {error}\n{report}", model.display());
        assert!(report.n_legalised > 0 && report.n_fallbacks() == 0, "{report}");
        // The CPU computes its neurons as before: a product or two, what is made of them, and the last product.
        let n_products = report.nodes[2] / N_LAYERS;
        assert!(n_products <= 6, "{report}");
    }
}

/// A plugin of this tree whose libraries are simulated, or one that is compiled here, halves a network with the CPU.
fn check_plugin(name: &str, file: &Path, options: &[(&str, &Path)], n_fallbacks: bool) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options =
        options.iter().map(|(key, value)| (format!("{name}.{key}"), value.display().to_string())).collect();
    let host = Host::new(HostOptions { options, n_threads: Some(2), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    let outcome = host.load(file.to_path_buf()).outcome;
    assert!(matches!(outcome, Outcome::Loaded { .. }), "{outcome:?}");
    let lab = Lab { host, _turn };
    check_changes(&lab, name);
    for model in models(&["llama", "bamboo", "opt"]) {
        for mode in [SparseMode::Predict, SparseMode::Exact] {
            let (expected, _) = lab.run(&model, 0, mode, None);
            let (found, report) = lab.run_on(&model, &[name], mode, Some(split(1, |i| i as usize % 2)));
            let error = nmse(&found, &expected);
            println!("{} {mode:?} {name}: NMSE {error:.1e}", model.file_name().unwrap().display());
            // Products of halves round there, so that a score may fall on the other side of the threshold.
            let limit = if (name, mode) == ("cann", SparseMode::Predict) { 1e-3 } else { 1e-6 };
            assert!(error <= limit, "{} {mode:?} {name}: NMSE {error}\n{report}", model.display());
            let neurons: Vec<u64> = report.neurons.iter().map(|(n, _)| *n).collect();
            // What a plugin without the ops cannot take apart falls back.
            let on_card = if n_fallbacks { 0 } else { u64::from(N_FF) };
            assert_eq!(neurons, [on_card, 2 * u64::from(N_FF) - on_card], "{report}");
            assert_eq!(report.n_fallbacks() > 0, n_fallbacks, "{report}");
        }
    }
}

#[test]
fn simulated_cards_halve_networks_with_the_cpu() {
    for (name, (file, libraries)) in [("cuda", nvidia::built()), ("cann", ascend::built())] {
        check_plugin(name, file, &[("lib_dir", libraries)], false);
    }
}

#[test]
fn a_c_plugin_that_lacks_the_ops_takes_part() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("libllmrt_c.so");
    if compile(Language::C, "plugins/examples/c/plugin.c", &file, &[]) {
        check_plugin("c", &file, &[], true);
    }
}

#[test]
fn queues_of_any_timing_give_the_same_bits() {
    let mut found = Vec::new();
    for options in ["queue=now", "queue=delay:200 seed=1", "queue=delay:200 seed=2", "queue=sync", "p2p=no"] {
        let lab = lab(options);
        for model in models(&["bamboo"]) {
            for (name, n_devices, split) in divisions() {
                let (logits, _) = lab.run(&model, n_devices, SparseMode::Predict, Some(split));
                found.push((name, logits.into_iter().map(f32::to_bits).collect::<Vec<_>>()));
            }
        }
    }
    let n = divisions().len();
    for (i, (name, bits)) in found.iter().enumerate() {
        assert!(*bits == found[i % n].1, "{name}, run {i}");
    }
}

/// The counts of each layer beside a model.
fn counts(dir: &Path) -> Vec<Counts> {
    let file = |i| dir.join("activation").join(format!("activation_{i}.pt"));
    (0..N_LAYERS).map(|i| Counts::from_pt(&std::fs::read(file(i)).unwrap()).unwrap()).collect()
}

fn budget(bytes: Option<u64>) -> EngineOptions {
    let neurons = NeuronOptions { vram_budget: bytes, ..NeuronOptions::default() };
    EngineOptions { n_ctx: 64, n_batch: 32, neurons, ..EngineOptions::default() }
}

/// Bytes of the first device with all neurons on the CPU.
fn dense_bytes(lab: &Lab, model: &Path, mut options: EngineOptions) -> u64 {
    options.neurons.split = Some(Arc::new(split(1, |_| 1)));
    let row = &PlacementPlan::new(&lab.pair(), &files(model), &options).unwrap().device_plans()[0];
    row.weights + row.kv + row.compute
}

#[test]
fn a_device_gets_the_most_active_neurons_that_its_budget_has_room_for() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let counts = counts(dir.path());
    let plan = |bytes| PlacementPlan::new(&lab.pair(), &files(&model), &budget(bytes)).unwrap();
    let whole = plan(None);
    assert!(whole.sharing.neurons.layers.is_empty(), "all fit, so that nothing is divided");
    assert!(whole.notes.is_empty(), "{:?}", whole.notes);
    let all = whole.device_plans()[0].total();
    let mut most = 0;
    for part in 0..=20 {
        let bytes = all * part / 20 + u64::from(part == 20) * 4096;
        let plan = plan(Some(bytes));
        let rows = plan.device_plans();
        let Some(row) = rows.iter().find(|row| row.device == "sim:sim.0") else {
            assert_eq!(most, 0, "{bytes}: too little for the device to be used");
            continue;
        };
        let n = match plan.sharing.neurons.layers.is_empty() {
            true => N_LAYERS as u64 * u64::from(N_FF),
            false => plan.resolved.report.neurons[0].0,
        };
        assert!(row.weights + row.kv + row.compute <= bytes || n == 0, "{bytes} bytes: {row:?}");
        assert!(n >= most, "{bytes} bytes have room for {n} neurons, fewer for {most}");
        for (layer, lists) in &plan.sharing.neurons.layers {
            assert_eq!(*lists[0], counts[*layer].hottest(lists[0].len()), "{bytes} bytes");
        }
        most = n;

        // What is planned is what the device allocates.
        let device = lab.device("sim:sim.0");
        let before = device.memory().unwrap().0;
        let core = steps::core(&lab.host, lab.pair(), files(&model), budget(Some(bytes))).unwrap();
        let used = before - device.memory().unwrap().0;
        assert_eq!(used, row.weights + row.kv + row.compute, "{bytes} bytes: {row:?}");
        drop(core);
    }
    assert_eq!(most, N_LAYERS as u64 * u64::from(N_FF), "all");
}

#[test]
fn what_neurons_cannot_be_chosen_by_is_noted_and_all_are_on_the_cpu() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let notes = |bytes| {
        let plan = PlacementPlan::new(&lab.pair(), &files(&model), &budget(Some(bytes))).unwrap();
        let on_cpu = plan.resolved.report.neurons.last().unwrap().0;
        // Of a device that is not used at all nothing is divided.
        assert!(plan.devices.len() == 1 || on_cpu == 2 * u64::from(N_FF), "{:?}", plan.notes);
        plan.notes.join("\n")
    };
    let found = notes(10_000);
    assert!(
        found.contains("sim:sim.0: the budget of 10000 bytes is less") && found.contains("dense parts"),
        "{found}"
    );
    let activation = dir.path().join("activation");
    std::fs::remove_dir_all(&activation).unwrap();
    assert!(notes(1 << 20).contains("llmrt sparse profile"));

    // An index of another model is an error, not another choice.
    let index = NeuronIndex { vram_capacity: 1, layers: vec![LayerIndex { n_ff: 7, hot: vec![1] }] };
    std::fs::write(dir.path().join("llama.gguf.generated.gpuidx"), index.to_vec().unwrap()).unwrap();
    let plan = |index| {
        let mut options = budget(Some(1 << 20));
        options.neurons.index = index;
        PlacementPlan::new(&lab.pair(), &files(&model), &options)
    };
    let problem = plan(IndexUse::Saved).err().unwrap().to_string();
    assert!(problem.contains("llama.gguf.generated.gpuidx") && problem.contains("layers"), "{problem}");
    assert!(plan(IndexUse::Renewed).is_ok());
    assert!(plan(IndexUse::Off).unwrap().sharing.neurons.layers.is_empty());
}

/// Attention, predictors and the KV cache come before neurons, and what they need does not depend on what is given.
#[test]
fn a_budget_below_the_dense_parts_has_no_neurons_and_the_note_has_what_is_needed() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let needed = dense_bytes(&lab, &model, budget(None));
    for part in 1..24 {
        let bytes = needed * part / 20;
        let plan = PlacementPlan::new(&lab.pair(), &files(&model), &budget(Some(bytes))).unwrap();
        let neurons = if plan.devices.len() > 1 { plan.resolved.report.neurons[0].0 } else { 0 };
        let note = format!("the budget of {bytes} bytes is less than the {needed} of the dense parts");
        let is_noted = plan.notes.iter().any(|found| found.contains(&note));
        assert_eq!((is_noted, neurons > 0), (bytes < needed, bytes > needed), "{bytes}: {:?}", plan.notes);
    }
}

#[test]
fn an_index_beside_the_model_is_used_if_its_neurons_fit() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let hot: Vec<Vec<u32>> = vec![vec![], (100..164).collect()];
    let layers = hot.iter().map(|hot| LayerIndex { n_ff: N_FF as usize, hot: hot.clone() }).collect();
    let index = NeuronIndex { vram_capacity: 1, layers };
    std::fs::write(dir.path().join("llama.gguf.generated.gpuidx"), index.to_vec().unwrap()).unwrap();
    let chosen = |bytes| {
        let plan = PlacementPlan::new(&lab.pair(), &files(&model), &budget(Some(bytes))).unwrap();
        plan.sharing.neurons.layers.values().map(|lists| lists[0].to_vec()).collect::<Vec<_>>()
    };
    let dense = dense_bytes(&lab, &model, budget(None));
    assert_eq!(chosen(dense + (128 << 10)), hot);
    // 64 neurons of three rows of 128 halves and predictors of 32 take 53 KiB.
    let fewer: usize = chosen(dense + (40 << 10)).iter().map(Vec::len).sum();
    assert!((32..50).contains(&fewer), "by counts, as many as there is room for: {fewer}");
}

#[test]
fn networks_that_a_rule_places_are_not_divided() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let plan = |rule: &str| {
        let mut options = budget(Some(700_000));
        options.tensors = [rule.parse().unwrap()].into();
        PlacementPlan::new(&lab.pair(), &files(&model), &options).unwrap()
    };
    let layers = |rule| plan(rule).sharing.neurons.layers.keys().copied().collect::<Vec<usize>>();
    assert_eq!(layers(r"blk\.1\.ffn=cpu"), [0]);
    assert!(layers("ffn=cpu").is_empty());
    let rows = plan("ffn=cpu").device_plans();
    assert!(rows[1].weights > rows[0].weights, "{rows:?}");
}

#[test]
fn files_beside_a_model_that_are_no_use_are_noted_unless_a_budget_depends_on_them() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    std::fs::write(dir.path().join("llama.sparse.gguf"), "no statistics").unwrap();
    let plan = |bytes| PlacementPlan::new(&lab.pair(), &files(&model), &budget(bytes));
    let by_default = plan(None).unwrap();
    assert!(by_default.sharing.neurons.layers.is_empty());
    let [note] = &by_default.notes[..] else { panic!("{:?}", by_default.notes) };
    assert!(note.contains("llama.sparse.gguf") && note.contains("not divided"), "{note}");
    assert!(plan(Some(1_500_000)).err().unwrap().to_string().contains("llama.sparse.gguf"));
}

/// Tokens of one kind, then of another, one a step.
fn two_subjects(n: usize) -> Vec<u32> {
    let (first, second) = ([10, 17, 24], [120, 131, 250]);
    (0..n).map(|i| first[i % 3]).chain((0..n).map(|i| second[i % 3])).collect()
}

/// What a model computes token by token while neurons change places.
struct Adapted {
    logits: Vec<f32>,
    /// The share of active neurons that devices had, by sixteen tokens.
    shares: Vec<f64>,
    moved_bytes: u64,
    /// What the first device allocated besides what was planned.
    unplanned: i64,
}

fn adapted(
    lab: &Lab,
    model: &Path,
    devices: Vec<Arc<Device>>,
    mode: SparseMode,
    neurons: NeuronOptions,
    tokens: &[u32],
) -> Adapted {
    let options = EngineOptions {
        n_ctx: 256,
        n_batch: 8,
        k_type: DType::F32,
        v_type: DType::F32,
        sparse: SparseOptions { mode, ..SparseOptions::default() },
        neurons,
        ..EngineOptions::default()
    };
    let plan = PlacementPlan::new(&devices, &files(model), &options).unwrap().device_plans();
    let planned = plan[0].weights + plan[0].kv + plan[0].compute;
    let before = devices[0].memory().unwrap().0;
    let mut core = steps::core(&lab.host, devices.clone(), files(model), options).unwrap();
    let allocated = before.saturating_sub(devices[0].memory().unwrap().0);
    core.add(steps::all_logits(tokens)).unwrap();
    core.set_max_num_batched_tokens(1).unwrap();
    let (mut logits, mut shares, mut last) = (Vec::new(), Vec::new(), core.runner().work().divided);
    for i in 1..=tokens.len() {
        logits.extend(steps::logits(core.step().unwrap()));
        if i % 16 == 0 {
            let now = core.runner().work().divided;
            let of = |i: usize| (now.active[i] - last.active[i]) as f64;
            shares.push(of(0) / of(1).max(1.0));
            last = now;
        }
    }
    assert!(core.is_idle());
    let unplanned = allocated as i64 - planned as i64;
    Adapted { logits, shares, moved_bytes: last.moved_bytes, unplanned }
}

/// A quarter of the neurons is on each device but the CPU; a few bytes of weights a step are enough to have those on it that the
/// present subject needs, wherever they were.
#[test]
fn neurons_change_places_so_that_devices_have_the_active_ones() {
    let lab = lab("");
    const LIMIT: u64 = 128 << 10;
    let tokens = two_subjects(96);
    let dir = tempfile::tempdir().unwrap();
    // Blocks along the neurons.
    let by_columns = models(&["llama.q4_0"]).pop().map(|from| {
        let to = dir.path().join("llama.q4_0.gguf");
        succeed(llmrt(["sparse", "convert"]).arg(from).arg(&to));
        to
    });
    for model in models(&["llama", "bamboo", "opt", "falcon", "llama.q4_0"]).into_iter().chain(by_columns) {
        let has_predictors = model.to_string_lossy().contains("powerinfer");
        for (mode, n_devices) in [(SparseMode::Exact, 1), (SparseMode::Predict, 1), (SparseMode::Exact, 2)] {
            if mode == SparseMode::Predict && !has_predictors {
                continue;
            }
            let name = format!("{} {mode:?} {n_devices}", model.file_name().unwrap().display());
            let devices = |n: usize| -> Vec<Arc<Device>> {
                ["sim:sim.0", "sim:sim.1"][..n].iter().chain(&["cpu"]).map(|id| lab.device(id)).collect()
            };
            let given =
                split(n_devices, |i| if (i / 256) < n_devices as u32 { i as usize / 256 } else { n_devices });
            let neurons = |adapt| NeuronOptions {
                split: Some(Arc::new(given.clone())),
                adapt,
                ..NeuronOptions::default()
            };
            let whole = adapted(&lab, &model, devices(0), mode, NeuronOptions::default(), &tokens);
            let found = adapted(&lab, &model, devices(n_devices), mode, neurons(Some(LIMIT)), &tokens);
            let error = nmse(&found.logits, &whole.logits);
            let n = found.shares.len();
            println!("{name}: NMSE {error:.1e}, {} bytes, {:.2?}", found.moved_bytes, found.shares);
            let limit = if model.to_string_lossy().contains("q4_0") { 1e-3 } else { 1e-9 };
            assert!(error <= limit, "{name}: NMSE {error}");
            assert_eq!(found.unplanned, 0, "{name}: bytes of the first device that were not planned");
            let (n_steps, share) = (tokens.len() as u64, &found.shares);
            assert!(
                found.moved_bytes > 0 && found.moved_bytes <= LIMIT * n_steps,
                "{name}: {}",
                found.moved_bytes
            );
            // Before the subject changes, right after it, and in the end.
            let (before, after, end) = (share[n / 2 - 1], share[n / 2], share[n - 1]);
            // Blocks of many neurons are nearly alike.
            if has_predictors {
                assert!(before > share[0] && end > after, "{name}: {share:.2?}");
                assert!(end - after >= 0.4 * (before - after), "{name}: {share:.2?}");
            }
        }
    }
}

/// A part of as many columns as the matrix has rows is one of columns still.
#[test]
fn columns_of_a_square_part_change_places() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(from) = models(&["llama.q4_0"]).pop() else { return };
    let model = dir.path().join("llama.q4_0.gguf");
    succeed(llmrt(["sparse", "convert"]).arg(from).arg(&model));
    let tokens: Vec<u32> = [[10; 96], [131; 96]].concat();
    // Rows of 128 numbers.
    let given = Some(Arc::new(split(1, |i| usize::from(i >= 128))));
    let neurons = NeuronOptions { split: given, adapt: Some(1 << 20), ..NeuronOptions::default() };
    let whole =
        adapted(&lab, &model, vec![lab.device("cpu")], SparseMode::Exact, NeuronOptions::default(), &tokens);
    let found = adapted(&lab, &model, lab.pair(), SparseMode::Exact, neurons, &tokens);
    let error = nmse(&found.logits, &whole.logits);
    assert!(found.moved_bytes > 0 && error <= 1e-6, "NMSE {error}, {} bytes", found.moved_bytes);
}

/// Neurons of matrices that a plugin may keep in a layout of its own change places, too.
fn check_changes(lab: &Lab, name: &str) {
    let tokens = two_subjects(12);
    for model in models(&["llama.q4_0"]) {
        let neurons = |adapt| {
            let split = Some(Arc::new(split(1, |i| usize::from(i >= N_FF / 4))));
            NeuronOptions { split, adapt, ..NeuronOptions::default() }
        };
        let run = |ids: &[&str], neurons| {
            let devices = ids.iter().map(|id| lab.device(id)).collect();
            adapted(lab, &model, devices, SparseMode::Exact, neurons, &tokens)
        };
        let whole = run(&["cpu"], NeuronOptions::default());
        let found = run(&[name, "cpu"], neurons(Some(1 << 20)));
        let error = nmse(&found.logits, &whole.logits);
        println!("{name}: NMSE {error:.1e}, {} bytes moved", found.moved_bytes);
        assert!(error <= 1e-3 && found.moved_bytes > 0, "{name}: NMSE {error}, {} bytes", found.moved_bytes);
    }
}

/// Statistics of a model without counts, with one split for devices of these names.
fn write_split(model: &Path, devices: &[&str], device_of: impl Fn(u32) -> u8, n_neurons: u32) {
    let files = files(model);
    let read = |t: &llmrt_gguf::TensorInfo, at: u64, bytes: &mut [u8]| files.read(t, at, bytes);
    let checksum = llmrt_sparse::digest(&files.model.metadata, &files.model.tensors, read).unwrap();
    let mut file = SparseFile::new(ModelId { name: "llama.gguf".into(), checksum });
    let of_layer: Vec<u8> = (0..n_neurons).map(device_of).collect();
    file.splits.push(Split {
        devices: devices.iter().map(|name| name.to_string()).collect(),
        bytes: vec![0; devices.len()],
        device_of: vec![of_layer; N_LAYERS],
    });
    let mut bytes = Vec::new();
    stats::write(&mut bytes, &file, |_, _| Ok(())).unwrap();
    std::fs::write(stats::path_beside(model), bytes).unwrap();
}

#[test]
fn a_split_beside_the_model_is_used_on_its_devices_if_it_fits() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let dense = dense_bytes(&lab, &model, budget(None));
    let plan = |bytes, index| {
        let mut options = budget(Some(bytes));
        options.neurons.index = index;
        PlacementPlan::new(&lab.pair(), &files(&model), &options)
    };
    let chosen = |bytes, index| {
        let neurons = plan(bytes, index)?.sharing.neurons.clone();
        Ok::<Vec<Vec<u32>>, llmrt_engine::Error>(
            neurons.layers.values().map(|lists| lists[0].to_vec()).collect(),
        )
    };
    // Why the split is not used, if it is not.
    let why = |bytes, index| {
        let notes = plan(bytes, index).unwrap().notes;
        let of_split = notes.into_iter().filter(|note| note.contains("llama.sparse.gguf"));
        of_split.collect::<Vec<_>>().join("; ")
    };
    let hot: Vec<Vec<u32>> = vec![(0..N_FF).filter(|i| i % 4 == 1).collect(); N_LAYERS];
    let none: Vec<Vec<u32>> = vec![vec![]; N_LAYERS];
    write_split(&model, &["sim:sim.0"], |i| u8::from(i % 4 == 1), N_FF);
    // 512 neurons of three rows of 128 halves and predictors of 32.
    // Halves take some compute memory more.
    let room = dense + 512 * (3 * 256 + 64) + (64 << 10);
    assert_eq!(chosen(room, IndexUse::Saved).unwrap(), hot);
    assert_eq!(chosen(room, IndexUse::Renewed).unwrap(), none, "there are no counts");
    assert_eq!(chosen(room - (128 << 10), IndexUse::Saved).unwrap(), none, "it does not fit");
    assert_eq!([why(room, IndexUse::Saved), why(room, IndexUse::Renewed)], ["", ""]);
    let found = why(room - (128 << 10), IndexUse::Saved);
    let expected =
        "the split for sim:sim.0 is not used: its neurons take 425984 bytes of sim:sim.0, which has";
    assert!(found.contains(expected), "{found}");
    let found = why(1 << 30, IndexUse::Saved);
    assert!(found.contains("is not used: all neurons fit into sim:sim.0"), "{found}");
    write_split(&model, &["sim:sim.1"], |i| u8::from(i % 4 == 1), N_FF);
    assert_eq!(chosen(room, IndexUse::Saved).unwrap(), none, "another device");
    let found = why(room, IndexUse::Saved);
    assert!(found.contains("it has no split for sim:sim.0, only for sim:sim.1"), "{found}");
    assert_eq!(why(1 << 30, IndexUse::Saved), "", "it is not for this device");
    write_split(&model, &["sim:sim.0"], |_| 1, N_FF - 1);
    let problem = chosen(room, IndexUse::Saved).unwrap_err().to_string();
    assert!(problem.contains("llama.sparse.gguf") && problem.contains("llmrt sparse solve"), "{problem}");
}

#[test]
fn the_kv_cache_comes_before_neurons() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let mut options = EngineOptions { max_seqs: 64, ..budget(None) };
    // Room for the dense parts, the cache of all sequences and some neurons.
    let room = dense_bytes(&lab, &model, options.clone()) + (100 << 10);
    options.neurons.vram_budget = Some(room);
    let share = memory::KvLimit::Share(1.0);
    let n_blocks = memory::kv_blocks(&lab.pair(), &files(&model), &options, share).unwrap();
    assert_eq!(n_blocks, 64 * 64 / 16);
    options.kv_blocks = Some(n_blocks);
    let plan = PlacementPlan::new(&lab.pair(), &files(&model), &options).unwrap();
    let [on_device, on_cpu] = plan.resolved.report.neurons[..] else { panic!("{}", plan.resolved.report) };
    assert!(on_device.0 > 64 && on_device.1 <= 100 << 10 && on_cpu.0 > 1024, "{on_device:?} {on_cpu:?}");
}
