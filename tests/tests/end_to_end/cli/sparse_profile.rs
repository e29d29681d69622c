//! `sparse profile` and `sparse thresholds`: what is measured of a model over a text, and what `--sparse magnitude` makes of it.

use super::{json, text};
use llmrt_gguf::Gguf;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_sparse::stats::SparseFile;
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::fixtures::root;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The embedded model as a file with this activation, and stories.
fn model_and_story(dir: &Path, activation: Option<&str>) -> (PathBuf, PathBuf) {
    let assets = root().join("cli/assets");
    let golden = std::fs::read_to_string(assets.join("stories.golden.txt")).unwrap();
    let lines = golden.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let part = |line: &Value, key: &str| line[key].as_str().unwrap().to_string();
    let text: String = lines.map(|line| part(&line, "prompt") + &part(&line, "text") + "\n\n").collect();
    let (story, model) = (dir.join("story.txt"), dir.join("stories.gguf"));
    std::fs::write(&story, text).unwrap();

    let bytes = std::fs::read(assets.join("stories.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
    let mut metadata = gguf.metadata.clone();
    activation.into_iter().for_each(|activation| metadata.set("llama.hidden_activation", activation));
    let data: Vec<&[u8]> =
        gguf.tensors.iter().map(|t| &bytes[t.offset as usize..][..t.nbytes as usize]).collect();
    let tensors = gguf.tensors.iter().map(|t| t.shape()).collect();
    let tables = Tables { metadata, tensors, ..Tables::default() };
    std::fs::write(&model, to_vec(&tables, &data).unwrap()).unwrap();
    (model, story)
}

/// The numbers of a line, whatever else is in it.
fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn profile(model: &Path, story: &Path, args: &[&str]) -> SparseFile {
    succeed(llmrt(["sparse", "profile", "-f"]).arg(story).arg(model).args(args));
    SparseFile::parse(&std::fs::read(model.with_extension("sparse.gguf")).unwrap()).unwrap()
}

fn perplexity(model: &Path, story: &Path, mode: &str) -> f64 {
    let command = &mut llmrt(["perplexity", "--json", "-c", "64", "--sparse", mode, "-f"]);
    json(command.arg(story).arg(model))["perplexity"].as_f64().unwrap()
}

#[test]
fn thresholds_for_two_fifths_of_the_bytes_cost_little_and_greedy_ones_less_than_equal_shares() {
    let dir = tempfile::tempdir().unwrap();
    let (model, story) = model_and_story(dir.path(), None);
    let lacks = fail(llmrt(["run", "-n", "4", "-p", "Once", "--sparse", "magnitude", "-m"]).arg(&model), 3);
    assert!(lacks.contains("llmrt sparse thresholds") && lacks.contains("--sparse-threshold"), "{lacks}");
    let lacks = fail(llmrt(["sparse", "thresholds"]).arg(&model), 3);
    assert!(lacks.contains("llmrt sparse profile"), "{lacks}");

    let file = profile(&model, &story, &[]);
    assert_eq!((file.quantiles.len(), file.counts.len()), (4 * 7, 0), "SiLU makes no zeros");
    let (_, down) = file.quantiles.iter().find(|(name, _)| name == "blk.3.ffn_down").unwrap();
    assert!(down.len() == 101 && down[100] > 1.0 && down[50] < down[100] / 4.0, "{down:?}");

    let off = perplexity(&model, &story, "off");
    let with = |zeros: &str, args: &[&str]| {
        succeed(llmrt(["sparse", "thresholds", "--zeros", zeros]).arg(&model).args(args));
        let file = SparseFile::parse(&std::fs::read(model.with_extension("sparse.gguf")).unwrap()).unwrap();
        assert_eq!((file.thresholds.len(), file.quantiles.len()), (4 * 7, 4 * 7));
        perplexity(&model, &story, "magnitude")
    };
    assert_eq!(with("0", &[]), off, "no input is below 0");
    let (greedy, equal) = (with("0.4", &[]), with("0.4", &["--uniform"]));
    assert!(greedy <= 1.02 * equal && greedy < 1.3 * off, "greedy {greedy}, uniform {equal}, off {off}");
    let run = succeed(llmrt(["run", "-n", "16", "-p", "Once", "--sparse", "magnitude", "-m"]).arg(&model));
    assert!(!run.stdout.is_empty());
    // A model without zeros has no counts, and a report of what the thresholds leave out.
    let report = json(llmrt(["sparse", "report", "--json"]).arg(&model));
    let bytes = |mode: &str| report["bytes_per_token"][mode].as_f64();
    let share = bytes("magnitude").unwrap() / bytes("dense").unwrap();
    assert!(share > 0.6 && share < 0.75 && bytes("exact").is_none(), "{report}");
    assert!(text(&succeed(llmrt(["sparse", "report"]).arg(&model)).stdout).contains("magnitude"));
}

#[test]
fn a_text_of_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (model, story) = model_and_story(dir.path(), Some("relu"));
    for (text, command) in [("", "profile"), (" \n", "profile"), ("", "predictor")] {
        std::fs::write(&story, text).unwrap();
        let refused = fail(llmrt(["sparse", command, "-f"]).arg(&story).arg(&model), 2);
        assert!(refused.contains("story.txt: there is no text in it: give one"), "{refused}");
    }
    // Nothing would be left to test predictors with.
    std::fs::write(&story, "Once upon a time").unwrap();
    let refused = fail(llmrt(["sparse", "predictor", "-f"]).arg(&story).arg(&model), 2);
    assert!(refused.contains("tokens, expected at least 20"), "{refused}");
    assert!(!model.with_extension("sparse.gguf").exists());
    // A text that is shorter than the one before replaces its counts, with a note.
    let long = dir.path().join("long.txt");
    std::fs::write(&long, "Once upon a time there was a dog. ".repeat(3)).unwrap();
    let notes = |story: &Path| {
        let out = succeed(llmrt(["sparse", "profile", "-f"]).arg(story).arg(&model));
        String::from_utf8(out.stderr).unwrap()
    };
    assert!(!notes(&long).contains("is replaced"));
    assert!(notes(&story).contains("is replaced by this, over fewer"));
}

#[test]
fn neurons_that_fire_are_counted_and_reported_and_a_file_of_another_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (model, story) = model_and_story(dir.path(), Some("relu"));
    let file = profile(&model, &story, &["-c", "50", "--chunks", "2"]);
    assert_eq!(file.n_tokens, 100);
    assert!(file.counts.len() == 4 && file.counts.iter().all(|counts| counts.as_slice().len() == 448));
    let zeros = 1.0 - file.counts.iter().map(|counts| counts.total()).sum::<f64>() / (4.0 * 448.0 * 100.0);
    assert!((0.2..0.9).contains(&zeros), "{zeros}");
    let report = text(&succeed(llmrt(["sparse", "report"]).arg(&model)).stdout);
    assert!(report.contains("counted over 100 tokens") && report.contains("exact"), "{report}");
    assert!(!report.contains("magnitude"), "{report}");

    // The activation decides what the file counts.
    let other = ["--override-kv", "llama.hidden_activation=str:relu2"];
    let refused = fail(llmrt(["sparse", "profile", "-f"]).arg(&story).arg(&model).args(other), 3);
    assert!(refused.contains("was made for stories.gguf"), "{refused}");
    let run = ["run", "-n", "1", "-p", "Once", "--sparse", "magnitude", "-m"];
    assert_eq!(fail(llmrt(run).arg(&model).args(other), 3), refused, "the same error of all commands");
    assert!(refused.contains("`llmrt sparse profile MODEL -f TEXT --force`"), "{refused}");
    let forced = profile(&model, &story, &[&other[..], &["--force", "--chunks", "1"]].concat());
    assert!(forced.counts.len() == 4 && forced.counts != file.counts);
    for args in [&["report"][..], &["solve", "--vram-budget", "1"]] {
        let command = || {
            let mut command = llmrt([&["sparse"], args].concat());
            command.arg(&model);
            command
        };
        assert!(fail(&mut command(), 3).contains("was made for stories.gguf"));
        succeed(command().args(other));
    }
}

#[test]
fn trained_predictors_pick_what_gives_most_and_make_a_model_that_predicts() {
    let dir = tempfile::tempdir().unwrap();
    let (model, story) = model_and_story(dir.path(), None);
    let refused = fail(llmrt(["sparse", "predictor", "-f"]).arg(&story).arg(&model), 3);
    assert!(refused.contains("makes no zeros") && refused.contains("--sparse magnitude"), "{refused}");

    let (model, story) = model_and_story(dir.path(), Some("relu"));
    profile(&model, &story, &[]);
    let args = ["sparse", "predictor", "--recall", "0.9", "--epochs", "3", "-f"];
    let table = text(&succeed(llmrt(args).arg(&story).arg(&model)).stdout);
    let (layers, thresholds) = table.split_once("\n\n").expect("two tables");
    assert!(layers.contains("RECALL") && layers.lines().count() == 5, "{table}");
    // From the highest threshold to the lowest, more neurons are picked, and they have more of the magnitudes.
    let numbers: Vec<Vec<f64>> = thresholds.lines().skip(1).map(numbers).collect();
    assert!(numbers.len() > 4, "{table}");
    for pair in numbers.windows(2) {
        assert!(pair[0][0] > pair[1][0] && pair[0][1] <= pair[1][1] && pair[0][2] <= pair[1][2], "{table}");
    }
    let bytes = std::fs::read(model.with_extension("sparse.gguf")).unwrap();
    let file = SparseFile::parse(&bytes).unwrap();
    assert_eq!((file.predictors.len(), file.counts.len()), (8, 4), "counts are kept");
    assert_eq!(file.predictors[1].ne, [48, 448, 1, 1]);
    let chosen =
        numbers.iter().find(|row| row[0] as f32 == file.predictor_threshold.unwrap()).expect("its threshold");
    assert!(
        chosen[2] >= 90.0 && (chosen[2] / 100.0 - f64::from(file.predictor_recall.unwrap())).abs() < 1e-3,
        "{table}"
    );

    let out = dir.path().join("stories.powerinfer.gguf");
    succeed(llmrt(["sparse", "convert"]).arg(&model).arg(&out));
    let logits = |mode: &[&str]| {
        let to = dir.path().join("logits");
        let command = &mut llmrt(["eval", "--tokens", "1 403 407 261", "--logits-out"]);
        succeed(command.arg(&to).args(mode).arg("-m").arg(&out));
        llmrt_tests::f32s(&std::fs::read(to).unwrap())
    };
    let all = logits(&["--sparse", "off"]);
    assert_eq!(logits(&["--sparse", "predict", "--sparse-threshold", "-inf"]), all);
    let picked = logits(&[]);
    let error = llmrt_tests::nmse(&picked, &all);
    assert!(picked != all && error < 0.5, "{error}");

    let recall = file.predictor_recall.unwrap();
    assert!((0.85..=1.0).contains(&recall), "{recall}");
    let line = |flags: &[&str]| {
        let run = &mut llmrt(["run", "-v", "--raw", "-n", "2", "-p", "Once", "-m"]);
        let stderr = String::from_utf8(succeed(run.arg(&out).args(flags)).stderr).unwrap();
        stderr.lines().find(|line| line.contains("predictors picked had")).map(str::to_string)
    };
    let found = line(&[]).unwrap();
    assert!(found.contains(&format!("{:.2} %", 100.0 * recall)), "{found}");
    assert_eq!([line(&["--sparse", "exact"]), line(&["--sparse-threshold", "0.5"])], [None, None]);
    let silu = [
        "run",
        "-n",
        "1",
        "-p",
        "a",
        "--override-kv",
        "llama.hidden_activation=str:silu",
        "--sparse",
        "exact",
    ];
    let refused = fail(llmrt(silu).arg("-m").arg(&out), 3);
    assert!(
        refused.contains("--sparse") && refused.contains("zeros"),
        "SiLU makes none in any layout: {refused}"
    );
    let auto = &mut llmrt([&["run", "-v", "--ignore-eos", "-n", "3", "-p", "a"], &silu[5..7]].concat());
    let stderr = String::from_utf8(succeed(auto.arg("-m").arg(&out)).stderr).unwrap();
    assert!(!stderr.contains("--sparse exact") && !stderr.contains("--sparse predict"), "{stderr}");

    // Predictors that are trained for a file with predictors replace these when it is converted.
    succeed(llmrt(args).arg(&story).arg(&out).args(["--seed", "7"]));
    let again = dir.path().join("again.powerinfer.gguf");
    succeed(llmrt(["sparse", "convert", "--to", "powerinfer"]).arg(&out).arg(&again));
    let fc1 = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
        let tensor = gguf.tensors.iter().find(|t| t.name == "blk.0.fc1.weight").unwrap();
        bytes[tensor.offset as usize..][..tensor.nbytes as usize].to_vec()
    };
    assert_ne!(fc1(&out), fc1(&again));
}
