//! Which neurons a device gets: by counts, an index or a split beside the model, as many as there is room for.

use crate::{Lab, N_FF, N_LAYERS, files, lab, split};
use llmrt_engine::EngineOptions;
use llmrt_engine::memory::{self, PlacementPlan, in_units};
use llmrt_engine::neurons::{IndexUse, NeuronOptions, UndividedCause};
use llmrt_sparse::index::{LayerIndex, NeuronIndex};
use llmrt_sparse::stats::{self, SparseFile, Split};
use llmrt_sparse::{Counts, ModelId};
use llmrt_tests::fixtures::counted_llama;
use llmrt_tests::steps;
use std::path::Path;
use std::sync::Arc;

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
        found.contains("sim:sim.0: the budget of 9.8 KiB has no room") && found.contains("not neurons"),
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
fn a_budget_below_what_is_not_neurons_has_no_neurons_and_the_note_has_what_is_needed() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let needed = dense_bytes(&lab, &model, budget(None));
    for part in 1..24 {
        let bytes = needed * part / 20;
        let plan = PlacementPlan::new(&lab.pair(), &files(&model), &budget(Some(bytes))).unwrap();
        let neurons = if plan.devices.len() > 1 { plan.resolved.report.neurons[0].0 } else { 0 };
        let [given, sum] = [bytes, needed].map(in_units);
        let note =
            format!("the budget of {given} has no room for neurons beside {sum} of what is not neurons");
        let is_noted = plan.notes.iter().any(|found| found.contains(&note));
        assert_eq!((is_noted, neurons > 0), (bytes <= needed, bytes > needed), "{bytes}: {:?}", plan.notes);
        let is_cause = plan.undivided.is_some_and(|why| why.cause == UndividedCause::NoRoom);
        assert_eq!(is_cause, bytes <= needed, "{bytes}");
    }
}

/// Two cards and the CPU.
fn two_cards(lab: &Lab, model: &Path, bytes: u64) -> PlacementPlan {
    let devices = ["sim:sim.0", "sim:sim.1", "cpu"].map(|id| lab.device(id)).to_vec();
    PlacementPlan::new(&devices, &files(model), &budget(Some(bytes))).unwrap()
}

#[test]
fn a_second_device_gets_the_neurons_that_a_first_one_has_no_room_for() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let plan = two_cards(&lab, &model, dense_bytes(&lab, &model, budget(None)) - 4096);
    let n: Vec<u64> = plan.resolved.report.neurons.iter().map(|(n, _)| *n).collect();
    assert_eq!(n, [0, N_LAYERS as u64 * u64::from(N_FF), 0], "{:?}", plan.notes);
    let notes = plan.notes.join("\n");
    assert!(notes.contains("sim:sim.0: the budget of") && notes.contains("no neuron is on it"), "{notes}");
}

#[test]
fn an_index_that_does_not_fit_its_device_decides_for_no_other() {
    let lab = lab("");
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let hot: [Vec<u32>; N_LAYERS] = [vec![], (100..164).collect()];
    let layers = hot.map(|hot| LayerIndex { n_ff: N_FF as usize, hot }).to_vec();
    let index = NeuronIndex { vram_capacity: 1, layers };
    std::fs::write(dir.path().join("llama.gguf.generated.gpuidx"), index.to_vec().unwrap()).unwrap();
    let plan = two_cards(&lab, &model, dense_bytes(&lab, &model, budget(None)) + (40 << 10));
    let notes = plan.notes.join("\n");
    assert!(notes.contains("this index is not used") && notes.contains("chosen by counts"), "{notes}");
    let n: Vec<u64> = plan.resolved.report.neurons.iter().map(|(n, _)| *n).collect();
    assert!(n[0] > 0 && n[1] > 64 && n[2] == 0, "{n:?}");
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
    let plan = |bytes| PlacementPlan::new(&lab.pair(), &files(&model), &budget(Some(bytes))).unwrap();
    let chosen = |bytes| {
        let neurons = plan(bytes).sharing.neurons.clone();
        neurons.layers.values().map(|lists| lists[0].to_vec()).collect::<Vec<_>>()
    };
    let dense = dense_bytes(&lab, &model, budget(None));
    assert_eq!(chosen(dense + (128 << 10)), hot);
    assert!(plan(dense + (128 << 10)).notes.is_empty());
    let notes = plan(dense + (40 << 10)).notes.join("\n");
    assert!(notes.contains("gpuidx: this index is not used: its neurons take 52.0 KiB"), "{notes}");
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
    let expected = "the split for sim:sim.0 is not used: its neurons take 416.0 KiB of sim:sim.0, which has";
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
