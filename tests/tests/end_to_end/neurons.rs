//! `--vram-budget` as a user has it: neurons of a sparse model on a simulated device and on the CPU.

use llmrt_sparse::Counts;
use llmrt_sparse::index::{LayerIndex, NeuronIndex};
use llmrt_sparse::stats::{self, SparseFile, path_beside};
use llmrt_tests::build::{fail, llmrt, plugin, succeed};
use llmrt_tests::fixtures::{counted_llama, root};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::{f32s, nmse};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In GiB: room for the dense parts and about half of the neurons.
const HALF: &str = "0.0015";

/// Logits of a few tokens, and stderr.
fn logits(command: &mut Command, model: &Path, flags: &[&str]) -> (Vec<f32>, String) {
    let out = tempfile::NamedTempFile::new().unwrap();
    let tokens = "3 10 17 24 31 38 45 52 59 66 73 80 87 94 101";
    command.args(["eval", "--tokens", tokens, "--logits", "all", "--chunks", "7,5,1", "-m"]).arg(model);
    let stderr = succeed(command.arg("--logits-out").arg(out.path()).args(flags)).stderr;
    (f32s(&std::fs::read(out.path()).unwrap()), String::from_utf8(stderr).unwrap())
}

fn on(device: &str) -> Command {
    let mut command = llmrt(["--plugin"]);
    command.arg(plugin("sim")).args(["--backend", device]);
    command
}

#[test]
fn neurons_are_where_the_placement_shows_them_and_the_logits_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let (expected, _) = logits(&mut llmrt([""; 0]), &model, &[]);
    let budget = ["--vram-budget", HALF];
    let mut inspect = on("sim:sim");
    inspect.args(["inspect", "--placement", "--json", "-c", "64"]).args(budget).arg(&model);
    let placed: Value = serde_json::from_slice(&succeed(&mut inspect).stdout).unwrap();
    let rows = placed["placement"]["devices"].as_array().unwrap();
    let neurons: Vec<_> = rows.iter().map(|row| row["n_neurons"].as_u64().unwrap()).collect();
    assert!(neurons[0] > 256 && neurons[1] > 256 && neurons[0] + neurons[1] == 2048, "{placed}");
    assert_eq!(placed["placement"]["n_fallbacks"], 0, "{placed}");

    // What is staged in the host's memory is no part of the budget.
    let mut plan = on("sim:sim");
    plan.args(["plan", "--json", "-c", "64"]).args(budget).arg(&model);
    let plan: Value = serde_json::from_slice(&succeed(&mut plan).stdout).unwrap();
    let of = |key: &str| plan["devices"][0][key].as_u64().unwrap();
    assert_eq!(of("total"), of("weights") + of("kv") + of("compute"), "{plan}");
    assert!(of("total") <= of("free") && of("staging") > 0, "{plan}");

    let (found, stderr) = logits(on("sim:sim").args(["-v", "--strict-device"]), &model, &[]);
    assert!(!stderr.contains("neurons:"), "all fit: {stderr}");
    assert!(nmse(&found, &expected) <= 1e-9);
    let (found, stderr) = logits(on("sim:sim").args(["-v", "--strict-device"]), &model, &budget);
    assert!(
        stderr.contains("neurons: ") && stderr.contains("on sim:sim, ") && stderr.contains("on cpu"),
        "{stderr}"
    );
    assert!(nmse(&found, &expected) <= 1e-9, "{stderr}");
}

#[test]
fn a_budget_for_neurons_that_are_not_divided_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let dense = TinyLlama::default().write(dir.path());
    let (_, stderr) = logits(&mut llmrt([""; 0]), &model, &["--vram-budget", "1"]);
    assert!(stderr.contains("--vram-budget: neurons are not divided"), "{stderr}");
    for (model, flags, why) in [
        (&model, &["--split", "row"][..], "--split row divides matrices by rows"),
        (&dense, &[], "all of this model's are computed"),
    ] {
        let (_, stderr) = logits(&mut on("sim:sim"), model, &[flags, &["--vram-budget", "1"]].concat());
        assert!(stderr.contains("neurons are not divided") && stderr.contains(why), "{flags:?}: {stderr}");
    }
}

#[test]
fn a_device_lost_in_a_step_leaves_all_neurons_to_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let Some(model) = counted_llama(dir.path()) else { return };
    let (expected, _) = logits(&mut llmrt([""; 0]), &model, &[]);
    for at in [1, 4, 9, 17] {
        let mut command = llmrt(["--plugin"]);
        command.arg(plugin("fault")).args(["--backend", "fault:sim", "--plugin-option", "fault.wrap=sim"]);
        command.arg("--plugin-option").arg(format!("fault.rule=compute[mul_mat]@{at}:error:device"));
        let (found, stderr) = logits(&mut command, &model, &["--vram-budget", HALF]);
        assert!(stderr.contains("fault:sim is not used any more"), "{at}: {stderr}");
        assert!(nmse(&found, &expected) <= 1e-9, "{at}: {stderr}");
    }
}

#[test]
fn budgets_that_are_none_are_refused() {
    for budget in ["-2", "nan", "4GiB"] {
        let stderr = fail(llmrt(["run", "-p", "x", "--vram-budget", budget]).arg("-n").arg("1"), 2);
        assert!(stderr.contains("GiB") && stderr.contains("-1 for the default"), "{stderr}");
    }
}

/// What a model writes, and stderr.
fn story(command: &mut Command, model: &Path, flags: &[&str]) -> (String, String) {
    command.args(["run", "--raw", "--temp", "0", "-n", "100", "-v", "--sparse", "exact"]);
    command.args(["-p", "Once upon a time", "-m"]).arg(model);
    let out = succeed(command.args(flags));
    [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into()
}

/// A trained model with ReLU.
fn relu_story_model(dir: &Path) -> PathBuf {
    let to = dir.join("relu.gguf");
    std::fs::copy(root().join("tests/fixtures/trained/relu.powerinfer.gguf"), &to).unwrap();
    to
}

/// Room for the dense parts and less than half of the neurons.
const SOME: [&str; 6] = ["-b", "8", "-c", "128", "--vram-budget", "0.002"];

#[test]
fn neurons_change_places_while_a_text_is_written_and_no_counts_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let model = relu_story_model(dir.path());
    let (expected, _) = story(&mut llmrt([""; 0]), &model, &[]);
    let (_, stderr) = story(&mut llmrt([""; 0]), &model, &["--sparse-adapt"]);
    assert!(stderr.contains("--sparse-adapt: neurons are not divided"), "{stderr}");
    let (text, stderr) = story(&mut on("sim:sim"), &model, &SOME);
    assert_eq!(text, expected);
    assert!(stderr.contains("there are no counts") && !stderr.contains("devices had"), "{stderr}");
    let flags = [&SOME[..], &["--sparse-adapt=256KiB"]].concat();
    let (text, stderr) = story(on("sim:sim").arg("--strict-device"), &model, &flags);
    assert_eq!(text, expected, "{stderr}");
    // Those of the line that begins so.
    let numbers = |begin: &str| -> Vec<f64> {
        let line = stderr.lines().map(str::trim_start).find_map(|line| line.strip_prefix(begin));
        let line = line.unwrap_or_else(|| panic!("{begin}: {stderr}"));
        line.split(' ').filter_map(|word| word.parse().ok()).collect()
    };
    let neurons = numbers("neurons: ");
    let on_device = 100.0 * neurons[0] / (neurons[0] + neurons[1]);
    let [active, n_tokens, n_moved, ..] = numbers("devices had ")[..] else { panic!("{stderr}") };
    assert!(n_tokens >= 99.0 && n_moved > 100.0, "{stderr}");
    assert!(active > on_device + 5.0, "{on_device:.1} % of the neurons: {stderr}");
    assert!(stderr.contains("a decoded token took"), "{stderr}");
}

/// Where a weight of a neuron that changes places cannot be written, the model is loaded again: no bytes of two neurons are left.
#[test]
fn weights_that_cannot_be_written_again_are_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    let model = relu_story_model(dir.path());
    let (expected, _) = story(&mut llmrt([""; 0]), &model, &[]);
    let faulty = |rule: &str| {
        let mut command = llmrt(["--plugin"]);
        command.arg(plugin("fault")).args(["--backend", "fault:sim", "--plugin-option", "fault.wrap=sim"]);
        command.arg("--plugin-option").arg(format!("fault.rule={rule}"));
        command.args(["run", "--raw", "--temp", "0", "-n", "100", "--sparse", "exact"]);
        // With drafts, since a device without memory may end these alone.
        command.args(SOME).args(["--sparse-adapt=256KiB", "--spec-type", "ngram"]);
        command.args(["-p", "Once upon a time", "-m"]).arg(&model);
        let out = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(out.stdout), text(out.stderr))
    };
    let (text, stderr) = faulty("set@400:error:device");
    assert!(stderr.contains("fault:sim is not used any more"), "{stderr}");
    assert_eq!(text, expected, "{stderr}");
    // Some of these calls write inputs of a step, which fails then.
    let mut n_loaded = 0;
    for n in (300..400).step_by(9) {
        for kind in ["error:call", "oom"] {
            let (text, stderr) = faulty(&format!("set@{n}:{kind}"));
            if stderr.contains("the model is loaded again") {
                assert_eq!(text, expected, "{kind}: {stderr}");
                n_loaded += 1;
            }
        }
    }
    assert!(n_loaded > 4, "{n_loaded}");
}

#[test]
fn a_split_by_measured_rates_is_kept_beside_the_model_and_its_time_is_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let model = relu_story_model(dir.path());
    let stderr =
        fail(on("sim:sim").args(["sparse", "solve", "--vram-budget", "0.002", "--measure"]).arg(&model), 3);
    assert!(stderr.contains("llmrt sparse profile"), "{stderr}");
    let text = root().join("tests/fixtures/trained/stories.txt");
    succeed(llmrt(["sparse", "profile", "-f"]).arg(text).arg(&model));
    // A device so slow that it is better without neurons.
    let slow = || {
        let mut command = on("sim:sim");
        command.args(["--plugin-option", "sim.rate=20000000"]);
        command
    };
    let placed = |flags: &[&str]| -> Value {
        let mut command = slow();
        command.args(["inspect", "--placement", "--json", "-b", "8", "-c", "128", "--vram-budget", "0.002"]);
        let placed: Value = serde_json::from_slice(&succeed(command.args(flags).arg(&model)).stdout).unwrap();
        placed["placement"].clone()
    };
    let on_device = |placed: &Value| placed["devices"][0]["n_neurons"].as_u64().unwrap();
    let by_counts = placed(&[]);
    assert!(on_device(&by_counts) > 1000, "{by_counts}");
    let rate = by_counts["devices"][0]["bytes_per_second"].as_f64().unwrap();
    assert!(rate > 1.2e7 && rate < 2.1e7, "{by_counts}");
    // What the device reads of its neurons in a token, at this rate.
    let [seconds, bytes] =
        ["neuron_seconds", "neuron_bytes"].map(|key| by_counts["devices"][0][key].as_f64().unwrap());
    assert!((seconds * rate / bytes - 1.0).abs() < 0.05, "{by_counts}");

    let too_small = ["sparse", "solve", "--vram-budget", "0.0005", "--ctx", "128", "--measure"];
    let needed = |flags: &[&str]| {
        let stderr = fail(slow().args(too_small).args(flags).arg(&model), 3);
        assert!(stderr.contains("no split is written"), "{stderr}");
        let (start, _) = stderr.split_once(" of what is not neurons").unwrap_or_else(|| panic!("{stderr}"));
        let [unit, number] = start.rsplit(' ').take(2).collect::<Vec<_>>()[..] else { panic!("{stderr}") };
        number.parse::<f64>().unwrap() * if unit == "MiB" { 1024.0 } else { 1.0 }
    };
    // The flags of `run` count.
    let (few, cache, many) = (needed(&["-b", "8"]), needed(&["-b", "8", "--kv-type", "f32"]), needed(&[]));
    assert!(few <= cache && few < many, "{few} {cache} {many}");
    let mut solve = slow();
    solve.args(["sparse", "solve", "-b", "8", "--vram-budget", "0.002", "--ctx", "128", "--measure"]);
    let stderr = String::from_utf8(succeed(solve.arg(&model)).stderr).unwrap();
    assert!(stderr.contains("relu.sparse.gguf: 0 B of neurons on devices; neurons take"), "{stderr}");
    // Nor without a budget on a device with little memory, whose split would stay.
    let mut little = on("sim:sim");
    little.args(["--plugin-option", "sim.memory=900000", "sparse", "solve", "-b", "8", "--ctx", "128"]);
    let stderr = fail(little.arg("--measure").arg(&model), 3);
    assert!(stderr.contains("no split is written: ") && stderr.contains("no room"), "{stderr}");
    let by_split = placed(&[]);
    assert_eq!(on_device(&by_split), 0, "{by_split}");
    let time = |placed: &Value| placed["neuron_seconds"].as_f64().unwrap();
    assert!(time(&by_split) < time(&by_counts) / 10.0, "{by_split} {by_counts}");
    assert_eq!(on_device(&placed(&["--reset-gpu-index"])), on_device(&by_counts));
    // Where the split is not used, `run` and `inspect` note it, once.
    let (_, stderr) = story(&mut on("sim:sim"), &model, &["-b", "8", "-c", "128", "--vram-budget", "1"]);
    let why = "warning: .*relu.sparse.gguf: the split for sim:sim is not used: all neurons fit into sim:sim";
    let (start, end) = why.split_once(".*").unwrap();
    let is_it = |line: &&str| line.starts_with(start) && line.ends_with(end);
    assert_eq!(stderr.lines().filter(is_it).count(), 1, "{stderr}");
    let inspect = ["inspect", "--placement", "-b", "8", "-c", "128", "--vram-budget", "1"];
    let stderr = String::from_utf8(succeed(on("sim:sim").args(inspect).arg(&model)).stderr).unwrap();
    assert_eq!(stderr.lines().filter(is_it).count(), 1, "{stderr}");
    // The counts are still there.
    succeed(llmrt(["sparse", "report"]).arg(&model));

    let stderr = fail(llmrt(["sparse", "solve", "--vram-budget", "1", "--measure"]).arg(&model), 2);
    assert!(stderr.contains("--backend"), "{stderr}");
}

/// The trained model as an ordinary file, whose last matrices have blocks of 32 neurons, with counts beside it.
fn counted_story_model(dir: &Path) -> PathBuf {
    let (from, to) = (root().join("tests/fixtures/trained/relu.powerinfer.gguf"), dir.join("relu.gguf"));
    succeed(llmrt(["sparse", "convert"]).arg(from).arg(&to));
    let text = root().join("tests/fixtures/trained/stories.txt");
    succeed(llmrt(["sparse", "profile", "--chunks", "8", "-f"]).arg(text).arg(&to));
    to
}

/// Neurons on the first device and on the CPU by a report.
fn neurons_of(report: &str) -> [u64; 2] {
    let line = report.lines().find_map(|line| line.trim_start().strip_prefix("neurons: "));
    let line = line.unwrap_or_else(|| panic!("{report}"));
    let first = |part: &str| part.split(' ').next().unwrap().parse().unwrap();
    let (device, cpu) = line.split_once(", ").unwrap();
    [first(device), first(cpu)]
}

/// From no room for any neuron to room for all, a larger budget is never refused or left to layers that fall back.
#[test]
fn each_budget_is_used_for_neurons() {
    let dir = tempfile::tempdir().unwrap();
    let model = counted_story_model(dir.path());
    let mut all = Vec::new();
    for budget in ["0.0024", "0.003", "0.0036", "0.005", "0.006", "0.007", "0.008", "0.009", "0.0095"] {
        let flags = ["-c", "384", "-b", "384", "--vram-budget", budget];
        let (_, stderr) = story(&mut on("sim:sim"), &model, &[&flags[..], &["-n", "2"]].concat());
        // Below what is not neurons, layers are on the CPU as well.
        assert_eq!(stderr.contains("fallback: "), budget == "0.0024", "{budget}: {stderr}");
        let [device, cpu] = neurons_of(&stderr);
        assert_eq!(device + cpu, 4096, "{stderr}");
        assert_eq!(device == 0, stderr.contains("has no room for neurons"), "{budget}: {stderr}");
        all.push(device);
    }
    // A search ends within a thirty-second of what fits, or a block.
    let grows = |pair: &[u64]| pair[1] + pair[1] / 16 + 32 >= pair[0];
    assert!(all.windows(2).all(grows) && all[0] == 0 && all[8] > 3000, "{all:?}");
    assert!(all[3] > 300 && all[4] > 500, "{all:?}");
    // With nothing to choose neurons by, a budget just below the whole model leaves a layer to the CPU.
    std::fs::remove_file(path_beside(&model)).unwrap();
    let (_, stderr) =
        story(&mut on("sim:sim"), &model, &["-c", "384", "-b", "384", "--vram-budget", "0.0096", "-n", "2"]);
    assert!(stderr.contains("fallback: ") && !stderr.contains("neurons: "), "{stderr}");
}

/// `sparse solve` chooses whole blocks where the file has some, so `run` has all of its neurons on the device; those of an index with
/// parts of blocks are rounded to whole ones, with a note.
#[test]
fn the_neurons_of_an_index_are_on_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let model = counted_story_model(dir.path());
    let flags = ["-b", "8", "-c", "128", "--vram-budget", "0.003", "-n", "2"];
    for budget in ["0.0012", "0.0018", "0.0024"] {
        let mut solve = llmrt(["sparse", "solve", "--force", "--ctx", "128", "--vram-budget", budget]);
        let stderr = String::from_utf8(succeed(solve.arg(&model)).stderr).unwrap();
        let (_, line) = stderr.split_once("4 layers, ").unwrap_or_else(|| panic!("{stderr}"));
        let chosen: u64 = line.split(' ').next().unwrap().parse().unwrap();
        let (_, stderr) = story(&mut on("sim:sim"), &model, &flags);
        assert!(chosen > 200 && neurons_of(&stderr)[0] == chosen, "{budget}, {chosen}: {stderr}");
        assert!(!stderr.contains("in whole blocks") && !stderr.contains("is not used"), "{stderr}");
    }

    let beside = dir.path().join("relu.gguf.generated.gpuidx");
    let layer = LayerIndex { n_ff: 1024, hot: (0..1024).filter(|i| i % 3 == 0).collect() };
    let index = NeuronIndex { vram_capacity: 0, layers: vec![layer; 4] };
    std::fs::write(beside, index.to_vec().unwrap()).unwrap();
    let (_, stderr) = story(&mut on("sim:sim"), &model, &flags);
    assert!(
        stderr.contains("of the 1368 neurons of this index 1280 are on sim:sim, in whole blocks")
            && neurons_of(&stderr)[0] == 4 * 320,
        "{stderr}"
    );
}

/// 448 neurons a layer are no whole number of the solver's groups of 256; counts that are all 0 choose none, with a note.
#[test]
fn layers_of_any_number_of_neurons_are_divided() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("stories.gguf");
    std::fs::copy(root().join("cli/assets/stories.gguf"), &model).unwrap();
    let relu = ["--override-kv", "llama.hidden_activation=str:relu"];
    let text = root().join("tests/fixtures/trained/stories.txt");
    succeed(llmrt(["sparse", "profile", "--chunks", "2", "-f"]).arg(text).arg(&model).args(relu));
    let (expected, _) = story(&mut llmrt([""; 0]), &model, &relu);
    let flags = [&relu[..], &["-b", "8", "-c", "128", "--vram-budget", "0.003"]].concat();
    let (text, stderr) = story(&mut on("sim:sim"), &model, &flags);
    let [device, cpu] = neurons_of(&stderr);
    assert!(device > 500 && cpu > 200 && device + cpu == 4 * 448, "{stderr}");
    assert_eq!(text, expected, "{stderr}");

    let beside = path_beside(&model);
    let mut file = SparseFile::parse(&std::fs::read(&beside).unwrap()).unwrap();
    file.counts.iter_mut().for_each(|counts| *counts = Counts::new(vec![0.0; 448]).unwrap());
    stats::write(std::fs::File::create(&beside).unwrap(), &file, |_, _| Ok(())).unwrap();
    let (text, stderr) = story(&mut on("sim:sim"), &model, &flags);
    assert_eq!((text, neurons_of(&stderr)), (expected, [0, 4 * 448]), "{stderr}");
    assert!(stderr.contains("all counts of active neurons are 0"), "{stderr}");
}
