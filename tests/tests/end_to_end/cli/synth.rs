//! `synth`: files in the shape of known models, with random weights.

use llmrt_abi::DType;
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::{f32s, nmse};
use std::path::{Path, PathBuf};

/// Makes NAME.gguf of one layer and a vocabulary of 300 tokens in `dir`.
fn synth(dir: &Path, name: &str, args: &[&str]) -> PathBuf {
    let path = dir.join(name).with_extension("gguf");
    let vocab = TinyLlama::default().write(dir);
    succeed(llmrt(["synth", "--layers", "1", "--vocab"]).arg(vocab).args(args).arg(&path));
    path
}

fn logits(model: &Path) -> Vec<f32> {
    let out = model.with_extension("logits");
    succeed(llmrt(["eval", "--tokens", "7 299 5", "-m"]).arg(model).arg("--logits-out").arg(&out));
    f32s(&std::fs::read(out).unwrap())
}

#[test]
fn a_file_of_each_type_runs_and_has_the_same_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let like = ["--like", "qwen2.5-0.5b", "--type"];
    let of_type = |name: &str| synth(dir.path(), name, &[&like[..], &[name]].concat());
    let expected = logits(&of_type("f32"));
    assert_eq!(expected.len(), 300);
    for (name, limit) in [("f16", 1e-5), ("q8_0", 1e-3), ("q4_k_m", 0.1), ("iq4_xs", 0.1), ("mxfp4", 0.1)] {
        let error = nmse(&logits(&of_type(name)), &expected);
        assert!(error < limit, "{name}: NMSE {error:e}");
    }
}

#[test]
fn the_seed_alone_decides_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |name: &str, args: &[&str]| {
        let all = [&["--like", "qwen2.5-0.5b", "--type", "q4_0"], args].concat();
        std::fs::read(synth(dir.path(), name, &all)).unwrap()
    };
    let one = bytes("a", &["--threads", "1"]);
    assert!(one == bytes("b", &["--threads", "3"]), "threads change the file");
    assert!(one != bytes("c", &["--seed", "2"]), "the seed changes nothing");
}

#[test]
fn types_follow_the_mix_and_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--like", "llama-3.2-1b", "--type", "q4_k_m", "--tensor", "ffn_up=q8_0"];
    let files = ModelFiles::open(&synth(dir.path(), "m", &args), &OpenOptions::default()).unwrap();
    for (name, dtype) in [
        ("token_embd", DType::Q6_K),
        ("blk.0.attn_q", DType::Q4_K),
        ("blk.0.ffn_up", DType::Q8_0),
        ("blk.0.ffn_norm", DType::F32),
    ] {
        assert_eq!(files.tensor(&format!("{name}.weight")).unwrap().dtype, dtype, "{name}");
    }
}

#[test]
fn without_a_vocabulary_one_of_the_models_size_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    succeed(llmrt(["synth", "--layers", "1", "--like", "qwen2.5-0.5b", "--type", "q4_0"]).arg(&path));
    let text = "Once upon a time";
    let ids = succeed(llmrt(["tokenize", "--ids", text, "-m"]).arg(&path)).stdout;
    let ids = String::from_utf8(ids).unwrap();
    assert!(ids.split_whitespace().count() < text.len(), "{ids}");
    let back = succeed(llmrt(["detokenize", "-m"]).arg(&path).args(ids.split_whitespace())).stdout;
    assert_eq!(String::from_utf8(back).unwrap(), text);
}

#[test]
fn what_cannot_be_made_is_refused_with_what_can() {
    let refused = |args: &[&str], problem: &str| {
        let stderr = fail(llmrt(["synth", "--like"]).args(args).arg("/nonexistent/x.gguf"), 2);
        assert!(stderr.contains(problem), "{stderr}");
    };
    refused(&["qwen9", "--type", "q4_0"], "expected one of qwen2.5-0.5b, llama-3.2-1b");
    refused(&["llama-3.2-1b", "--type", "q4_9"], "expected one of f32, f16");
    refused(&["llama-3.2-1b", "--type", "q4_0", "--layers", "0"], "expected 1 to 1024");
}

#[test]
fn a_file_with_predictors_has_counts_beside_it_and_misses_little() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--like", "relu-llama-3.2-1b", "--type", "q8_0", "--predictors"];
    let path = synth(dir.path(), "m", &args);
    let report = succeed(llmrt(["sparse", "report"]).arg(&path));
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(report.contains("8192  90.0 %") && report.contains("predict"), "{report}");

    let of = |mode: &str| {
        let out = path.with_extension(mode);
        let args = ["eval", "--tokens", "7 299 5", "--sparse", mode, "-m"];
        succeed(llmrt(args).arg(&path).arg("--logits-out").arg(&out));
        f32s(&std::fs::read(out).unwrap())
    };
    let (exact, predicted) = (of("exact"), of("predict"));
    assert_eq!(exact, of("off"));
    assert_ne!(exact, predicted);
    let error = nmse(&predicted, &exact);
    assert!(error < 1e-4, "NMSE {error:e}");

    // What a decoded token took. With `off`, too, rows of the last matrix that are for zeros are not.
    let took = |mode: &str| {
        let run = &mut llmrt(["run", "-v", "-p", "a", "-n", "9", "--ignore-eos", "--sparse", mode, "-m"]);
        let notes = String::from_utf8(succeed(run.arg(&path)).stderr).unwrap();
        notes.lines().find(|line| line.starts_with("a decoded token took ")).expect("the line").to_string()
    };
    let percent = |line: &str, after: &str| {
        let (number, _) = line.split(after).nth(1).and_then(|rest| rest.split_once(" %")).unwrap();
        number.parse::<f64>().unwrap()
    };
    let (off, exact, predicted) = (took("off"), took("exact"), took("predict"));
    for (line, mode) in [(&off, "off"), (&exact, "exact"), (&predicted, "predict")] {
        assert!((5.0..20.0).contains(&percent(line, "took ")), "{line}");
        assert!(
            line.contains("of 8192 neurons, ")
                && line.ends_with(&format!("over 8 tokens, with --sparse {mode}")),
            "{line}"
        );
    }
    let shares = [&off, &exact, &predicted].map(|line| percent(line, "matrices ("));
    assert!(shares[0] - 10.0 > shares[1] && shares[1] - 10.0 > shares[2], "{off}; {exact}; {predicted}");

    let dense = ["synth", "--like", "llama-3.2-1b", "--type", "f16", "--predictors"];
    let error = fail(llmrt(dense).arg(dir.path().join("dense.gguf")), 2);
    assert!(error.contains("relu-llama-2-7b"), "{error}");
}
