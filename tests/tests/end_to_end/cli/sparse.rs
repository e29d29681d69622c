//! `sparse`: PowerInfer's files, and what is planned with them.

use super::{json, stdout};
use llmrt_abi::DType;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Flavour, Gguf, Metadata, TensorShape};
use llmrt_graph::quant;
use llmrt_sparse::index::NeuronIndex;
use llmrt_sparse::stats::SparseFile;
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::fixtures::{fixture, fixtures};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::{f32s, nmse};
use std::path::{Path, PathBuf};

const N_EMBD: u64 = 128;
const N_FF: u64 = 1024;
const RANK: u64 = 32;

/// A PowerInfer model of two layers with weights of this type, laid out as upstream does.
fn powerinfer(dir: &Path, dtype: DType) -> PathBuf {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("llama.block_count", 2u32);
    metadata.set("powerinfer.sparse_threshold", 0.1f32);
    metadata.set("llama.feed_forward_length", N_FF as u32);
    let mut tensors = vec![("token_embd".to_string(), [N_EMBD, 16])];
    for i in 0..2 {
        let parts = [
            ("attn_q", [N_EMBD, N_EMBD]),
            ("attn_k", [N_EMBD, 64]),
            ("attn_v", [N_EMBD, 64]),
            ("ffn_gate", [N_EMBD, N_FF]),
            ("ffn_up", [N_EMBD, N_FF]),
            ("ffn_down_t", [N_EMBD, N_FF]),
            ("fc1", [N_EMBD, RANK]),
            ("fc2", [RANK, N_FF]),
        ];
        tensors.extend(parts.map(|(part, dims)| (format!("blk.{i}.{part}"), dims)));
    }
    let mut state = 7u32;
    let mut random = |n: u64| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    };
    let data: Vec<_> = tensors.iter().map(|(_, [a, b])| quant::quantise(dtype, &random(a * b))).collect();
    let shape =
        |(name, dims): &(String, [u64; 2])| TensorShape::new(format!("{name}.weight"), dtype, dims).unwrap();
    let tensors = tensors.iter().map(shape).collect();
    let tables = Tables { flavour: Flavour::PowerInfer, metadata, tensors, ..Tables::default() };
    let path = dir.join("tiny.powerinfer.gguf");
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    std::fs::write(&path, to_vec(&tables, &slices).unwrap()).unwrap();
    path
}

/// Converts to `name` beside the model; gives its path and stderr.
fn converted(model: &Path, name: &str, args: &[&str]) -> (PathBuf, String) {
    let out = model.with_file_name(name);
    let done = succeed(llmrt(["sparse", "convert", "--force"]).arg(model).arg(&out).args(args));
    (out, String::from_utf8(done.stderr).unwrap())
}

fn read(path: &Path) -> (Gguf, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    (Gguf::parse(&bytes, bytes.len() as u64).unwrap(), bytes)
}

fn tensor(path: &Path, name: &str) -> (DType, [u64; 4], Vec<u8>) {
    let (gguf, bytes) = read(path);
    let t = gguf.tensor(name).unwrap_or_else(|| panic!("no {name}"));
    (t.dtype, t.ne, bytes[t.offset as usize..][..t.nbytes as usize].to_vec())
}

/// To GGUF and back: the same bytes.
fn comes_back(model: &Path, arch: &str) {
    let (gguf, _) = converted(model, "plain.gguf", &[]);
    let (tables, _) = read(&gguf);
    assert_eq!(tables.flavour, Flavour::Dense);
    assert!(tables.tensors.iter().all(|t| !t.name.contains(".fc") && !t.name.contains("_t.")), "{arch}");
    assert_eq!(tables.tensor("blk.1.ffn_down.weight").unwrap().ne, [N_FF, N_EMBD, 1, 1]);
    let has_key = tables.metadata.str(&format!("{arch}.hidden_activation")) == Some("relu");
    assert_eq!(has_key, ["llama", "falcon"].contains(&arch), "{arch}");
    let (again, _) = converted(&gguf, "again.powerinfer.gguf", &[]);
    assert!(std::fs::read(again).unwrap() == std::fs::read(model).unwrap(), "{arch}");
}

#[test]
fn a_model_of_powerinfer_becomes_gguf_and_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    comes_back(&powerinfer(dir.path(), DType::F16), "llama");
    let Some(folder) = fixtures("powerinfer") else { return };
    for arch in ["llama", "bamboo", "falcon", "opt"] {
        let Some(file) = fixture(&folder, &format!("{arch}.powerinfer.gguf")) else { return };
        let model = dir.path().join("model.gguf");
        std::fs::write(&model, std::fs::read(file).unwrap()).unwrap();
        comes_back(&model, arch);
    }
}

#[test]
fn quantised_down_is_quantised_again_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let model = powerinfer(dir.path(), DType::Q4_0);
    let (out, stderr) = converted(&model, "out.gguf", &[]);
    assert!(stderr.contains("2 matrices such as blk.0.ffn_down.weight (Q4_0) are dequantised"), "{stderr}");
    let (dtype, ne, bytes) = tensor(&out, "blk.0.ffn_down.weight");
    assert_eq!((dtype, ne), (DType::Q4_0, [N_FF, N_EMBD, 1, 1]));
    let (_, _, before) = tensor(&model, "blk.0.ffn_down_t.weight");
    let (now, before) = (quant::dequantise(dtype, &bytes), quant::dequantise(dtype, &before));
    let turned: Vec<f32> =
        (0..now.len()).map(|i| before[i % N_FF as usize * N_EMBD as usize + i / N_FF as usize]).collect();
    let error = nmse(&now, &turned);
    assert!(error > 0.0 && error < 0.02, "{error}");
    assert_eq!(tensor(&out, "blk.0.ffn_up.weight").2, tensor(&model, "blk.0.ffn_up.weight").2);
}

#[test]
fn predictors_of_torch_make_a_model_of_powerinfer() {
    let Some(folder) = fixtures("powerinfer") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (gguf, _) = converted(&powerinfer(dir.path(), DType::F16), "plain.gguf", &[]);
    std::fs::remove_file(gguf.with_extension("sparse.gguf")).unwrap();
    let refused = |args: &[&str]| {
        let out = gguf.with_file_name("never.gguf");
        let stderr = fail(llmrt(["sparse", "convert"]).arg(&gguf).arg(&out).args(args), 3);
        assert!(!out.exists());
        stderr
    };
    assert!(refused(&[]).contains("has no predictors, which PowerInfer's files need"));

    let predictors = dir.path().join("predictors");
    std::fs::create_dir(&predictors).unwrap();
    let copy = |name: &str| std::fs::copy(folder.join("pt").join(name), predictors.join(name)).unwrap();
    copy("model_0.pt");
    let args = ["--predictors", predictors.to_str().unwrap()];
    assert!(refused(&args).contains("predictors of 1 layers, the model has 2"));
    copy("model_1.pt");
    std::fs::write(predictors.join("config.json"), r#"{"sparse_threshold": 0.25}"#).unwrap();
    let (out, _) = converted(&gguf, "out.powerinfer.gguf", &args);
    assert_eq!(read(&out).0.metadata.f32("powerinfer.sparse_threshold"), Some(0.25));
    let file = std::fs::read(predictors.join("model_1.pt")).unwrap();
    let expected = llmrt_sparse::Predictor::from_pt(&file).unwrap();
    assert_eq!(
        tensor(&out, "blk.1.fc1.weight"),
        (DType::F16, [N_EMBD, RANK, 1, 1], expected.fc1.bytes(&file).into())
    );
    assert_eq!(
        tensor(&out, "blk.1.fc2.weight"),
        (DType::F16, [RANK, N_FF, 1, 1], expected.fc2.bytes(&file).into())
    );
}

#[test]
fn a_model_with_another_activation_is_not_converted_for_powerinfer() {
    let dir = tempfile::tempdir().unwrap();
    let (gguf, _) = converted(&powerinfer(dir.path(), DType::F16), "plain.gguf", &[]);
    let out = dir.path().join("never.gguf");
    let silu = ["--override-kv", "llama.hidden_activation=str:silu"];
    let beside = gguf.with_extension("sparse.gguf");
    let stderr = fail(llmrt(["sparse", "convert"]).arg(&gguf).arg(&out).args(silu), 3);
    // The activation decides which neurons fire, so the file beside is of another model.
    assert!(stderr.contains("was made for plain.gguf"), "{stderr}");
    std::fs::remove_file(beside).unwrap();
    let Some(folder) = fixtures("powerinfer") else { return };
    let predictors = folder.join("pt");
    let command = &mut llmrt(["sparse", "convert"]);
    let stderr = fail(command.arg(&gguf).arg(&out).args(silu).arg("--predictors").arg(predictors), 3);
    assert!(stderr.contains("`llama.hidden_activation` is silu: PowerInfer computes relu"), "{stderr}");
}

fn logits(model: &Path) -> Vec<f32> {
    let out = model.with_extension("logits");
    let tokens = ["eval", "--tokens", "1 262 263 264 265", "--logits", "all", "-m"];
    succeed(llmrt(tokens).arg(model).arg("--logits-out").arg(&out));
    f32s(&std::fs::read(out).unwrap())
}

/// The most active neuron of a file of counts.
fn hottest_of(path: &Path) -> usize {
    let counts = llmrt_sparse::Counts::from_pt(&std::fs::read(path).unwrap()).unwrap();
    counts.order()[0] as usize
}

#[test]
fn sorted_neurons_compute_the_same() {
    let Some(folder) = fixtures("powerinfer") else { return };
    let dir = tempfile::tempdir().unwrap();
    let shape = TinyLlama { n_embd: N_FF / 2, ..TinyLlama::default() };
    let model = shape.write(dir.path());
    let activation = folder.join("pt");
    let args = ["--to", "gguf", "--sort", "--activation", activation.to_str().unwrap()];
    let (out, _) = converted(&model, "sorted.gguf", &args);
    assert!(nmse(&logits(&out), &logits(&model)) < 1e-9);
    let up = "blk.0.ffn_up.weight";
    assert!(tensor(&out, up).2 != tensor(&model, up).2);

    // The counts beside are those of the sorted neurons, so sorting again changes nothing.
    let stats = SparseFile::parse(&std::fs::read(out.with_extension("sparse.gguf")).unwrap()).unwrap();
    assert!(stats.counts.iter().all(|counts| counts.as_slice().is_sorted_by(|a, b| a >= b)));
    let (again, _) = converted(&out, "again.gguf", &["--to", "gguf", "--sort"]);
    assert!(std::fs::read(again).unwrap() == std::fs::read(&out).unwrap());

    // Predictors are sorted with their neurons, in either format.
    let model = powerinfer(dir.path(), DType::F16);
    let sorting = ["--sort", "--activation", activation.to_str().unwrap()];
    let (sorted, _) =
        converted(&model, "sorted.powerinfer.gguf", &[&["--to", "powerinfer"], &sorting[..]].concat());
    let (gguf, _) = converted(&model, "sorted.plain.gguf", &sorting);
    let (back, _) = converted(&gguf, "back.powerinfer.gguf", &[]);
    assert!(std::fs::read(back).unwrap() == std::fs::read(&sorted).unwrap());
    let fc2 = "blk.1.fc2.weight";
    let hottest = hottest_of(&activation.join("activation_1.pt"));
    assert_eq!(tensor(&sorted, fc2).2[..64], tensor(&model, fc2).2[64 * hottest..][..64]);

    let quantised = TinyLlama { dtype: DType::Q8_0, ..shape }.write(dir.path());
    let never = dir.path().join("never.gguf");
    let stderr = fail(llmrt(["sparse", "convert"]).arg(quantised).arg(&never).args(args), 3);
    assert!(stderr.contains("neurons are in blocks") && stderr.contains("sort a float file"), "{stderr}");
}

fn stats(model: &Path) -> SparseFile {
    SparseFile::parse(&std::fs::read(model.with_extension("sparse.gguf")).unwrap()).unwrap()
}

#[test]
fn counts_of_active_neurons_go_along_with_the_model_into_either_format() {
    let Some(folder) = fixtures("powerinfer") else { return };
    let dir = tempfile::tempdir().unwrap();
    let model = powerinfer(dir.path(), DType::F16);
    let activation = folder.join("pt");
    let counted = ["--activation", activation.to_str().unwrap(), "--tokens", "32"];
    let (gguf, _) = converted(&model, "plain.gguf", &counted);
    let (back, _) = converted(&gguf, "back.powerinfer.gguf", &[]);
    let (again, _) = converted(&back, "again.gguf", &[]);
    let of = |model: &Path| (stats(model).counts, stats(model).n_tokens);
    assert_eq!((of(&gguf).0.len(), of(&gguf).1), (2, 32));
    assert_eq!([of(&back), of(&again)], [of(&gguf), of(&gguf)]);

    // Those of another model are left out, where the model has predictors of its own.
    std::fs::copy(gguf.with_extension("sparse.gguf"), back.with_extension("sparse.gguf")).unwrap();
    let (again, stderr) = converted(&back, "again.gguf", &[]);
    assert!(stderr.contains("was made for plain.gguf") && stderr.contains("are left out"), "{stderr}");
    assert!(stats(&again).counts.is_empty());
}

/// The index that `solve` writes for the fixture's counts with room for so many neurons.
fn solved(dir: &Path, neurons: u64, args: &[&str]) -> (NeuronIndex, String) {
    let model = powerinfer(dir, DType::F16);
    // The embeddings are the output matrix, too.
    let dense = 2 * 16 * N_EMBD + 2 * 2 * (N_EMBD * N_EMBD + 2 * N_EMBD * 64 + N_EMBD * RANK + RANK * N_FF);
    let budget = (dense + neurons * 3 * N_EMBD * 2) as f64 / (1u64 << 30) as f64;
    let activation = fixtures("powerinfer").unwrap().join("pt");
    let command = &mut llmrt(["sparse", "solve", "--force", "--vram-budget", &budget.to_string()]);
    let done = succeed(command.arg(&model).arg("--activation").arg(activation).args(args));
    let index = std::fs::read(dir.join("tiny.powerinfer.gguf.generated.gpuidx")).unwrap();
    (NeuronIndex::parse(&index).unwrap(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn the_index_has_the_neurons_of_upstreams() {
    if fixtures("powerinfer").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = |neurons, args: &[&str], expected: [usize; 2]| {
        let (index, stderr) = solved(dir.path(), neurons, args);
        let found: Vec<_> = index.layers.iter().map(|layer| layer.hot.len()).collect();
        assert_eq!(found, expected, "{args:?}: {stderr}");
        index.check_model(&[N_FF as usize; 2]).unwrap();
    };
    check(256, &[], [256, 0]);
    check(768, &[], [256, 512]);
    check(768, &["--threshold", "512"], [0, 768]);
    check(2048, &[], [768, 768]);
    check(0, &[], [0, 0]);
    // A device so fast that everything active is worth its bytes, and one that never is.
    check(2048, &["--device-rate", "1000", "--cpu-rate", "1"], [768, 768]);
    check(2048, &["--device-rate", "1000", "--cpu-rate", "1", "--device-cost", "9e9"], [0, 0]);
    let (_, stderr) = solved(dir.path(), 768, &[]);
    assert!(stderr.contains("2 layers, 768 of 2048 neurons (37.5 %)"), "{stderr}");
}

#[test]
fn a_budget_below_the_dense_parts_is_an_empty_split() {
    let Some(folder) = fixtures("powerinfer") else { return };
    let dir = tempfile::tempdir().unwrap();
    let model = powerinfer(dir.path(), DType::F16);
    let solve = |activation: &Path, budget: &str| {
        let mut command = llmrt(["sparse", "solve", "--force", "--vram-budget", budget, "--activation"]);
        command.arg(activation).arg(&model);
        command
    };
    let done = succeed(&mut solve(&folder.join("pt"), "0.0001"));
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(stderr.contains("is below the") && stderr.contains("an empty split"), "{stderr}");
    assert!(stderr.contains("(0.0 %), 0 B, 0.0 % of activations"), "{stderr}");
    assert!(fail(&mut solve(&folder.join("pt"), "nan"), 2).contains("expected a number of GiB"));
    let stderr = fail(&mut solve(&folder.join("pt"), "-1"), 2);
    assert!(
        stderr.contains("--vram-budget -1: there is no default here: give the memory of the device"),
        "{stderr}"
    );
    // Keys and values of either type: two layers of 64 each.
    let needed = |flags: &[&str]| {
        let done = succeed(solve(&folder.join("pt"), "0").args(flags));
        let stderr = String::from_utf8(done.stderr).unwrap();
        let words: Vec<_> = stderr.split_once("is below the ").unwrap().1.split(' ').collect();
        assert_eq!(words[1], "KiB", "{stderr}");
        words[0].parse::<f64>().unwrap()
    };
    let (none, f16, f32) = (needed(&[]), needed(&["-c", "64"]), needed(&["-c", "64", "--kv-type", "f32"]));
    assert!((f16 - none - 32.0).abs() < 0.2 && (f32 - none - 64.0).abs() < 0.2, "{none} {f16} {f32}");
    let stderr = fail(&mut solve(&folder.join("pt/refuse"), "1"), 3);
    assert!(stderr.contains("no file activation_<layer>.pt"), "{stderr}");
}

#[test]
fn a_report_has_zeros_and_the_share_of_neurons_that_is_active() {
    let Some(folder) = fixtures("powerinfer") else { return };
    let dir = tempfile::tempdir().unwrap();
    let model = powerinfer(dir.path(), DType::F16);
    let activation = folder.join("pt");
    let report = json(llmrt(["sparse", "report", "--json"]).arg(&model).arg("--activation").arg(&activation));
    assert_eq!(report["tokens"], 32);
    let zeros = report["layers"][0]["zeros"].as_f64().unwrap();
    let counts = std::fs::read_to_string(folder.join("llama.counts.txt")).unwrap();
    let first: f64 =
        counts.lines().next().unwrap().split_whitespace().map(|n| n.parse::<f64>().unwrap()).sum();
    assert!((zeros - (1.0 - first / 32.0 / N_FF as f64)).abs() < 1e-12, "{report}");
    let bytes = |mode: &str| report["bytes_per_token"][mode].as_f64().unwrap();
    assert!(bytes("predict") < bytes("exact") && bytes("exact") < bytes("dense"), "{report}");

    let path = |path: &Path| path.to_str().unwrap().to_string();
    let words = ["sparse".into(), "report".into(), path(&model), "--activation".into(), path(&activation)];
    let table = stdout(words);
    assert!(table.contains("FOR 99 %") && table.contains("BYTES A TOKEN"), "{table}");
    // PowerInfer's folder is found beside the model, where `run` finds it, too.
    std::fs::create_dir(dir.path().join("activation")).unwrap();
    for layer in ["activation_0.pt", "activation_1.pt"] {
        std::fs::copy(activation.join(layer), dir.path().join("activation").join(layer)).unwrap();
    }
    assert_eq!(stdout(["sparse".into(), "report".into(), path(&model)]), table);
    let few = fail(llmrt(["sparse", "report", "--tokens", "1"]).arg(&model), 2);
    assert!(few.contains("--tokens 1: a neuron was active in "), "{few}");
}

#[test]
fn statistics_of_an_older_model_are_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (gguf, _) = converted(&powerinfer(dir.path(), DType::F16), "plain.gguf", &[]);
    let other = TinyLlama::default().write(dir.path());
    std::fs::rename(gguf.with_extension("sparse.gguf"), other.with_extension("sparse.gguf")).unwrap();
    let stderr = fail(llmrt(["sparse", "report"]).arg(&other), 3);
    assert!(stderr.contains("was made for plain.gguf") && stderr.contains("not for tiny.gguf"), "{stderr}");
}
