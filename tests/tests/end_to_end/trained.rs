//! Models that were trained here with ReLU and dReLU (tools/train), in PowerInfer's form: what their zeros and predictors are worth.

use llmrt_sparse::stats::{self, SparseFile, path_beside};
use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::fixtures::root;
use std::collections::HashSet;
use std::path::PathBuf;

const MODELS: [&str; 2] = ["relu", "drelu"];

fn model(name: &str) -> PathBuf {
    root().join(format!("tests/fixtures/trained/{name}.powerinfer.gguf"))
}

/// Held-out stories of the corpus.
fn stories() -> PathBuf {
    root().join("tests/fixtures/trained/stories.txt")
}

/// What a command writes to stdout, and to stderr.
fn output(args: &[&str], name: &str, sparse: &str) -> (String, String) {
    let out = succeed(llmrt(args).arg("-m").arg(model(name)).args(["--sparse", sparse]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

fn story(name: &str, sparse: &str) -> (String, String) {
    // Of the modes `magnitude` alone: inputs below this count as zeros. For predictors it would be another threshold.
    let threshold: &[&str] = if sparse == "magnitude" { &["--sparse-threshold", "0.05"] } else { &[] };
    let args = ["run", "--raw", "--temp", "0", "-n", "120", "-v", "-p", "Once upon a time"];
    output(&[&args, threshold].concat(), name, sparse)
}

/// The share of neurons that a decoded token took, in percent.
fn neurons(stderr: &str) -> f64 {
    let line = stderr.lines().find(|line| line.contains("neurons")).unwrap_or_else(|| panic!("{stderr}"));
    let (before, _) = line.split_once(" %").unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn each_mode_writes_a_story_and_exact_that_of_off() {
    let known = std::fs::read_to_string(stories()).unwrap();
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let vocabulary: HashSet<String> = words(&known).into_iter().collect();
    for name in MODELS {
        let (off, _) = story(name, "off");
        for sparse in ["exact", "predict", "magnitude"] {
            let (text, stderr) = story(name, sparse);
            assert!(stderr.contains(&format!("with --sparse {sparse}")), "{stderr}");
            assert!(sparse != "exact" || text == off, "{name}: {text}\n{off}");
            let found = words(&text);
            let n_known = found.iter().filter(|word| vocabulary.contains(*word)).count();
            assert!(found.len() > 60, "{name} {sparse}: {text}");
            // The corpus has 801 words, the held-out part most of them.
            assert!(n_known * 10 >= found.len() * 9, "{name} {sparse}: {n_known} words are known of {text}");
            assert!(text.matches('.').count() >= 5, "{name} {sparse}: {text}");
            let percent = neurons(&stderr);
            assert!(percent > 0.5 && percent < if sparse == "exact" { 15.0 } else { 30.0 }, "{percent}");
        }
    }
}

#[test]
fn predictors_cost_less_than_a_hundredth_of_perplexity() {
    let perplexity = |name: &str, sparse: &str| {
        let text = stories();
        let args = ["perplexity", "-c", "256", "--chunks", "8", "-f", text.to_str().unwrap()];
        let (stdout, _) = output(&args, name, sparse);
        let number =
            stdout.split_once("perplexity ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{stdout}"))
    };
    for name in MODELS {
        let exact: f64 = perplexity(name, "exact");
        assert_eq!(exact, perplexity(name, "off"), "{name}");
        assert!(exact > 1.5 && exact < 2.6, "{name}: {exact}");
        let predicted = perplexity(name, "predict");
        assert!((predicted / exact - 1.0).abs() < 0.01, "{name}: {predicted} beside {exact}");
        assert!(predicted != exact, "{name}: nothing was predicted");
    }
}

#[test]
fn auto_is_off_where_few_neurons_give_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, text] = ["relu.gguf", "story.txt"].map(|name| dir.path().join(name));
    let begin: String = std::fs::read_to_string(stories()).unwrap().chars().take(2000).collect();
    std::fs::write(&text, begin).unwrap();
    succeed(llmrt(["sparse", "convert"]).args([model("relu"), plain.clone()]));
    succeed(llmrt(["sparse", "profile"]).arg(&plain).arg("-f").arg(&text));
    let run = |sparse: &[&str]| {
        let args = ["run", "--raw", "--temp", "0", "-n", "20", "-v", "-p", "Once upon a time"];
        let out = succeed(llmrt(args).arg("-m").arg(&plain).args(sparse));
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.stdout, stderr.contains(" neurons, "), stderr)
    };
    let (off, counts_neurons, _) = run(&["--sparse", "off"]);
    assert!(!counts_neurons);
    let (auto, counts_neurons, stderr) = run(&[]);
    assert!(auto == off && counts_neurons && !stderr.contains("auto is off"), "{stderr}");

    // The same counts of fewer tokens.
    let beside = path_beside(&plain);
    let mut counted = SparseFile::parse(&std::fs::read(&beside).unwrap()).unwrap();
    counted.n_tokens /= 6;
    counted.predictors.clear();
    stats::write(std::fs::File::create(&beside).unwrap(), &counted, |_, _| Ok(())).unwrap();
    let (auto, counts_neurons, stderr) = run(&[]);
    assert!(auto == off && !counts_neurons, "{stderr}");
    assert!(
        stderr.contains("--sparse auto is off") && stderr.contains("% of neurons give zeros"),
        "{stderr}"
    );
    let (exact, counts_neurons, stderr) = run(&["--sparse", "exact"]);
    assert!(exact == off && counts_neurons && !stderr.contains("auto is off"), "{stderr}");

    // A file that cannot be read has no counts, and is noted with what helps.
    let whole = std::fs::read(&beside).unwrap();
    for damaged in [&[][..], b"text", &whole[..whole.len() / 2]] {
        std::fs::write(&beside, damaged).unwrap();
        let (auto, counts_neurons, stderr) = run(&[]);
        assert!(auto == off && counts_neurons, "{stderr}");
        assert!(
            stderr.contains("or is damaged") && stderr.contains("profile MODEL -f TEXT --force"),
            "{stderr}"
        );
    }
}
