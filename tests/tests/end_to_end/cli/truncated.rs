//! A model file that another program truncates while it is in use.

use super::text;
use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::models::TinyLlama;
use std::io::Read;
use std::process::Stdio;

#[test]
fn a_model_that_is_truncated_during_generation_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, vocab) = (dir.path().join("model.gguf"), TinyLlama::default().write(dir.path()));
    let shape = ["synth", "--layers", "1", "--like", "qwen2.5-0.5b", "--type", "q8_0", "--vocab"];
    succeed(llmrt(shape).arg(vocab).arg(&path));
    let mut run = llmrt(["run", "-p", "a b c", "-n", "30000", "-c", "32000", "--logit-bias", "2-inf", "-m"]);
    // Weights stay in the mapped file.
    run.arg(&path).env("LLMRT_REPACK", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).expect("a token is generated");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("model.gguf") && stderr.contains("100000"), "{stderr}");
}
