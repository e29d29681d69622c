//! `perplexity`: how well a model predicts, and how far it is from another one.

use super::json;
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::fixtures::root;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The stories that the embedded model is checked with, as one text, and the model as a file.
fn story_and_model(dir: &Path) -> (PathBuf, PathBuf) {
    let assets = root().join("cli/assets");
    let golden = std::fs::read_to_string(assets.join("stories.golden.txt")).unwrap();
    let lines = golden.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let part = |line: &Value, key: &str| line[key].as_str().unwrap().to_string();
    let text: String = lines.map(|line| part(&line, "prompt") + &part(&line, "text") + "\n\n").collect();
    let path = dir.join("story.txt");
    std::fs::write(&path, text).unwrap();
    (path, assets.join("stories.gguf"))
}

fn measured(story: &Path, args: &[&str]) -> Value {
    json(llmrt(["perplexity", "--json", "-c", "32", "-f"]).arg(story).args(args))
}

#[test]
fn the_embedded_model_has_the_perplexity_that_llama_cpp_finds() {
    let dir = tempfile::tempdir().unwrap();
    let (story, _) = story_and_model(dir.path());
    let found = measured(&story, &[]);
    assert_eq!((found["windows"].as_u64(), found["predictions"].as_u64()), (Some(6), Some(90)));
    // llama-perplexity -c 32 -b 32: 3.2779 ± 0.84591, with attention in F16.
    let close = |key: &str, expected: f64| (found[key].as_f64().unwrap() / expected - 1.0).abs() < 0.01;
    assert!(close("perplexity", 3.2779) && close("perplexity_error", 0.84591), "{found}");
    // Chunks change nothing, as everywhere.
    assert_eq!(found, measured(&story, &["-b", "7"]));
}

#[test]
fn a_model_does_not_diverge_from_itself_and_more_with_fewer_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (story, model) = story_and_model(dir.path());
    let model = model.to_str().unwrap();
    let kld = |of: &str| measured(&story, &[of, "--kl", model]);
    let same = kld(model);
    assert_eq!((same["mean_kld"].as_f64(), same["same_top"].as_f64()), (Some(0.0), Some(1.0)), "{same}");
    let of_type = |name: &str| {
        let out = dir.path().join(name);
        succeed(llmrt(["quantize", model]).arg(&out).arg(name));
        kld(out.to_str().unwrap())["mean_kld"].as_f64().unwrap()
    };
    let (q8_0, q4_0) = (of_type("q8_0"), of_type("q4_0"));
    assert!(0.0 < q8_0 && q8_0 < 0.002 && q8_0 < q4_0 && q4_0 < 0.2, "{q8_0} {q4_0}");
}

#[test]
fn what_cannot_be_compared_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (story, _) = story_and_model(dir.path());
    let short = fail(llmrt(["perplexity", "-c", "250", "--chunks", "0", "-f"]).arg(&story), 2);
    assert!(short.contains("--chunks 0"), "{short}");
    let other = llmrt_tests::models::TinyLlama::default().write(dir.path());
    let stderr = fail(llmrt(["perplexity", "-c", "32", "-f"]).arg(&story).arg("--kl").arg(other), 3);
    assert!(stderr.contains("has 300 tokens"), "{stderr}");
}
