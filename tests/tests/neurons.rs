//! Networks whose neurons are divided among simulated devices and the CPU give the logits of whole ones, whichever neurons each
//! device has and whenever its queue runs.

mod neurons {
    mod choice;
}

use llmrt_abi::DType;
use llmrt_engine::EngineOptions;
use llmrt_engine::core::Runner;
use llmrt_engine::memory::PlacementPlan;
use llmrt_engine::neurons::NeuronOptions;
use llmrt_graph::quant;
use llmrt_graph::rows::NeuronSplit;
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_host::sched::report::Report;
use llmrt_host::{Device, Host, HostOptions, Outcome};
use llmrt_models::{SparseMode, SparseOptions};
use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::compile::{Language, compile};
use llmrt_tests::fixtures::{fixture, fixtures, root};
use llmrt_tests::{ascend, nmse, nvidia, steps};
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options reach a plugin when it is initialised, and it is initialised once at a time in a process.
static TURN: Mutex<()> = Mutex::new(());

/// Layers and neurons of the fixtures.
const N_LAYERS: usize = 2;
const N_FF: u32 = 1024;
const N_EMBD: u64 = 128;
/// Numbers between the matrices of a predictor.
const RANK: u64 = 32;

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
                // Of a token and layer the input, what a predictor has of it, and one sum cross to the CPU or back; the token's
                // embedding once. Two devices exchange as much.
                let of_token = N_LAYERS as u64 * (2 * N_EMBD + RANK) + N_EMBD;
                assert!(report.copied_bytes <= n_devices as u64 * 4 * of_token, "{name}: {report}");
                let is_divided = report.neurons.iter().filter(|(n, _)| *n > 0).count() > 1;
                assert!(
                    !is_divided || report.copied_bytes >= N_LAYERS as u64 * 4 * 2 * N_EMBD,
                    "{name}: {report}"
                );
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

/// The share of what neurons give, by magnitude, that those have which the predictors of trained models pick, and how many these are.
#[test]
fn predictors_of_trained_models_find_nearly_all_and_pick_few() {
    let lab = lab("");
    for name in ["relu", "drelu"] {
        let model = root().join(format!("tests/fixtures/trained/{name}.powerinfer.gguf"));
        let files = files(&model);
        let table = &files.model.tensors;
        let dequantised = |name: &str| {
            let tensor = table.iter().find(|t| t.name == name).unwrap();
            let mut bytes = vec![0; tensor.nbytes as usize];
            files.read(tensor, 0, &mut bytes).unwrap();
            quant::dequantise(tensor.dtype, &bytes)
        };
        let fc2: Vec<Vec<f32>> = (0..4).map(|i| dequantised(&format!("blk.{i}.fc2.weight"))).collect();
        let tokenizer = Tokenizer::from_metadata(&files.model.metadata).unwrap();
        let threshold: f32 = files.model.metadata.f32("powerinfer.sparse_threshold").unwrap_or(0.0);

        // Every neuron is computed, and the predictors are as well.
        let sparse = SparseOptions {
            mode: SparseMode::Predict,
            threshold: Some(f32::NEG_INFINITY),
            ..SparseOptions::default()
        };
        let options = EngineOptions { n_ctx: 256, n_batch: 256, sparse, ..EngineOptions::default() };
        let mut core = steps::core(&lab.host, vec![lab.device("cpu")], files, options).unwrap();
        let text = std::fs::read_to_string(root().join("tests/fixtures/trained/stories.txt")).unwrap();
        let tokens = tokenizer
            .encode(&text[..24_000], EncodeOptions { add_special: true, parse_special: false })
            .unwrap();
        let (mut scores, mut h) = (vec![Vec::new(); 4], vec![Vec::new(); 4]);
        for window in tokens.chunks_exact(256).take(16) {
            core.runner_mut()
                .product_inputs(window, &|_| false, &mut |weight, n, rows| {
                    let layer =
                        weight.strip_prefix("blk.").map(|rest| usize::from(rest.as_bytes()[0] - b'0'));
                    match (layer, weight.ends_with(".fc2.weight"), weight.ends_with(".ffn_down_t.weight")) {
                        (Some(layer), true, _) => {
                            let rows = rows.chunks_exact(n);
                            scores[layer]
                                .extend(rows.flat_map(|x| fc2[layer].chunks_exact(n).map(|w| dot(w, x))));
                        }
                        (Some(layer), _, true) => h[layer].extend_from_slice(rows),
                        _ => {}
                    }
                })
                .unwrap();
        }
        let (mut recall, mut picked) = (0.0, 0.0);
        for (layer, (scores, h)) in scores.iter().zip(&h).enumerate() {
            assert!(scores.len() == h.len() && h.len() == 16 * 256 * 1024, "{name} {layer}");
            let found = scores.iter().zip(h).filter(|(score, _)| **score >= threshold);
            let (n, sum) = found.fold((0, 0.0), |(n, sum), (_, h)| (n + 1, sum + f64::from(h.abs())));
            let of_layer = sum / h.iter().map(|h| f64::from(h.abs())).sum::<f64>();
            println!(
                "{name}, layer {layer}: recall {of_layer:.4}, picked {:.3}",
                f64::from(n) / h.len() as f64
            );
            (recall, picked) = (recall + of_layer / 4.0, picked + f64::from(n) / h.len() as f64 / 4.0);
        }
        assert!(
            recall >= 0.99 && picked <= 0.3,
            "{name}: recall {recall}, {picked} of the neurons are picked"
        );
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
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
