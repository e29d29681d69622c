//! Every architecture gives the logits that llama.cpp gave: in one batch, token by token, in odd chunks, and with the
//! CPU plugin loaded from its shared library.

use llmrt_tests::build::{llmrt, plugin, succeed};
use llmrt_tests::fixtures::{architectures, compared, fixtures, tokens};
use llmrt_tests::{f32s, nmse};
use std::path::Path;

/// `eval` with extra flags must be within 1e-5 of the stored logits of every file.
fn check(extra: &[&str]) {
    for (model, stored) in compared() {
        let logits = eval(&model, &tokens(), extra);
        let stored = std::fs::read(stored).unwrap();
        let error = nmse(&logits, &f32s(&stored));
        println!("{:<20} NMSE {error:.1e}", model.file_stem().unwrap().to_string_lossy());
        assert!(error <= 1e-5, "{}: NMSE {error}", model.display());
    }
}

fn eval(model: &Path, tokens: &Path, extra: &[&str]) -> Vec<f32> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("logits");
    let mut command = llmrt(["eval", "--logits", "all", "-m"]);
    command.arg(model).arg("--tokens-file").arg(tokens).arg("--logits-out").arg(&out).args(extra);
    succeed(&mut command);
    f32s(&std::fs::read(out).unwrap())
}

#[test]
fn one_batch_gives_the_stored_logits() {
    check(&[]);
}

#[test]
fn token_by_token_gives_the_stored_logits() {
    check(&["--chunks", "1"]);
}

#[test]
fn odd_chunks_give_the_stored_logits() {
    check(&["--chunks", "5,17,3,1,7"]);
}

#[test]
fn the_cpu_plugin_from_its_file_gives_the_stored_logits() {
    let so = plugin("cpu");
    check(&["--plugin", so.to_str().unwrap(), "--backend", "libllmrt_cpu.so", "-v"]);
}

/// On the CPU the order of additions is fixed, so chunks and threads change no bit; nor does the way the plugin got in.
#[test]
fn chunks_threads_and_the_plugin_file_change_no_bit_of_the_logits() {
    let tokens = tokens();
    let so = plugin("cpu");
    let loaded = ["--plugin", so.to_str().unwrap(), "--backend", "libllmrt_cpu.so"];
    for (model, _) in compared() {
        let whole = eval(&model, &tokens, &["-t", "1"]);
        for extra in [&["-t", "2"][..], &["--chunks", "1"], &["-t", "2", "--chunks", "5,17,3,1,7"], &loaded] {
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&whole) == bits(&eval(&model, &tokens, extra)), "{} {extra:?}", model.display());
        }
    }
}

/// A file of an architecture that is not built yet costs an error with a cause, nothing else.
#[test]
fn every_other_architecture_is_refused_by_name() {
    let Some(dir) = fixtures("archs") else { return };
    let [known, unknown] = architectures(&dir);
    assert!(known.len() >= 4, "{known:?}");
    for model in unknown {
        let out = llmrt(["eval", "-m"])
            .arg(&model)
            .arg("--tokens-file")
            .arg(dir.join("tokens.txt"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{}: {text}", model.display());
        assert!(text.contains("architecture"), "{}: {text}", model.display());
    }
}
