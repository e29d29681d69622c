//! Files of PowerInfer give the logits of a plain reference that masks neurons by the file's predictors, or ignores these, and
//! those of PowerInfer itself.

use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::fixtures::{fixture, fixtures};
use llmrt_tests::{f32s, nmse, reference};
use std::path::{Path, PathBuf};

const ARCHS: [&str; 4] = ["llama", "bamboo", "falcon", "opt"];

/// The folder of fixtures, and a file in it for each of `names`; nothing where there are none.
fn files<'a>(names: &'a [&str], end: &'a str) -> impl Iterator<Item = (&'a str, PathBuf, PathBuf)> {
    let dir = fixtures("powerinfer");
    names.iter().filter_map(move |name| {
        let dir = dir.as_ref()?;
        Some((*name, dir.clone(), fixture(dir, &format!("{name}{end}"))?))
    })
}

fn eval(dir: &Path, model: &Path, extra: &[&str]) -> Vec<f32> {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("logits");
    let mut command = llmrt(["eval", "--logits", "all", "-m"]);
    command.arg(model).arg("--tokens-file").arg(dir.join("tokens.txt")).arg("--logits-out").arg(&out);
    succeed(command.args(extra));
    f32s(&std::fs::read(out).unwrap())
}

/// `eval` with extra flags is within `limit` of the stored logits of every architecture.
fn check(extra: &[&str], stored: &str, limit: f64) {
    for (name, dir, model) in files(&ARCHS, ".powerinfer.gguf") {
        let stored = f32s(&std::fs::read(dir.join(format!("{name}.{stored}"))).unwrap());
        let error = nmse(&eval(&dir, &model, extra), &stored);
        println!("{name:<10} {extra:?} NMSE {error:.1e}");
        assert!(error <= limit, "{name} {extra:?}: NMSE {error}");
    }
}

#[test]
fn predictors_pick_the_neurons_of_the_reference() {
    for chunks in ["32", "5", "1"] {
        check(&["--chunks", chunks], "logits.f32", 1e-6);
    }
    check(&["--sparse", "predict", "--sparse-threshold", "0.1"], "logits.f32", 1e-6);
}

#[test]
fn predictors_are_ignored_where_the_mode_is_another() {
    for mode in ["exact", "off"] {
        check(&["--sparse", mode], "exact.f32", 1e-6);
        check(&["--sparse", mode, "--chunks", "1"], "exact.f32", 1e-6);
    }
    check(&["--sparse-threshold", "-inf"], "exact.f32", 1e-6);
}

#[test]
fn logits_are_those_of_powerinfer() {
    check(&[], "upstream.f32", 1e-4);
    for (name, dir, model) in files(&["llama", "opt"], ".q4_0.powerinfer.gguf") {
        let stored = f32s(&std::fs::read(dir.join(format!("{name}.q4_0.upstream.f32"))).unwrap());
        let error = nmse(&eval(&dir, &model, &[]), &stored);
        println!("{name:<10} Q4_0 NMSE {error:.1e}");
        assert!(error <= 5e-3, "{name}: NMSE {error}");
    }
}

/// GGUF files that are made of them compute the same, and commands take those of another type as they take theirs.
#[test]
fn what_is_made_of_a_file_has_its_logits() {
    let out = tempfile::tempdir().unwrap();
    for (name, dir, model) in files(&ARCHS, ".powerinfer.gguf") {
        let stored = |of: &str| f32s(&std::fs::read(dir.join(format!("{name}.{of}.f32"))).unwrap());
        let plain = out.path().join(format!("{name}.gguf"));
        succeed(llmrt(["sparse", "convert"]).arg(&model).arg(&plain));
        for mode in ["exact", "off"] {
            let error = nmse(&eval(&dir, &plain, &["--sparse", mode]), &stored("exact"));
            assert!(error <= 1e-6, "{name} as GGUF, {mode}: NMSE {error}");
        }
        let smaller = out.path().join(format!("{name}.q8_0.powerinfer.gguf"));
        succeed(llmrt(["quantize"]).arg(&model).arg(&smaller).arg("Q8_0"));
        assert!(std::fs::read(&smaller).unwrap().starts_with(b"PWRI"));
        let errors = [("predict", "logits"), ("exact", "exact")]
            .map(|(mode, of)| nmse(&eval(&dir, &smaller, &["--sparse", mode]), &stored(of)));
        println!("{name:<10} Q8_0 NMSE {errors:?}");
        // Other predictors pick others.
        assert!(errors[0] <= 2e-2 && errors[1] <= 2e-3, "{name} as Q8_0: NMSE {errors:?}");
        for command in [&["inspect"][..], &["plan"], &["sparse", "convert"]] {
            let mut command = llmrt(command);
            let is_convert = command.get_args().count() > 1;
            command.arg(&smaller).args(is_convert.then(|| out.path().join(format!("{name}.again.gguf"))));
            succeed(&mut command);
        }
    }
}

#[test]
fn exact_has_the_bits_of_off_in_any_chunks_and_threads() {
    let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for (names, end) in [(&ARCHS[..], ".powerinfer.gguf"), (&["llama", "opt"], ".q4_0.powerinfer.gguf")] {
        for (name, dir, model) in files(names, end) {
            let off = bits(eval(&dir, &model, &["--sparse", "off", "-t", "1"]));
            for chunks in ["1", "3", "32"] {
                for threads in ["1", "2"] {
                    let flags = ["--sparse", "exact", "--chunks", chunks, "-t", threads];
                    assert!(off == bits(eval(&dir, &model, &flags)), "{name}{end} {flags:?}");
                }
            }
        }
    }
}

#[test]
fn a_threshold_of_the_environment_counts_unless_a_flag_gives_another() {
    for (name, dir, model) in files(&["llama"], ".powerinfer.gguf") {
        let out = tempfile::tempdir().unwrap();
        let out = out.path().join("logits");
        let mut command = llmrt(["eval", "--logits", "all", "-m"]);
        command.arg(&model).arg("--tokens-file").arg(dir.join("tokens.txt")).arg("--logits-out").arg(&out);
        succeed(command.env("LLAMA_SPARSE_PRED_THRESHOLD", "-1e30"));
        let all = f32s(&std::fs::read(&out).unwrap());
        assert_eq!(all, eval(&dir, &model, &["--sparse-threshold", "-1e30"]), "{name}");
        assert_ne!(all, eval(&dir, &model, &[]));
        succeed(command.args(["--sparse-threshold", "0.1"]));
        assert_eq!(f32s(&std::fs::read(&out).unwrap()), eval(&dir, &model, &[]));
    }
}

/// The ops by their plain references, and what they are made of.
#[test]
fn the_plain_references_of_the_ops_give_the_logits() {
    for (name, dir, model) in files(&ARCHS, ".powerinfer.gguf") {
        let tokens = std::fs::read_to_string(dir.join("tokens.txt")).unwrap();
        let tokens: Vec<i32> = tokens.split_whitespace().map(|t| t.parse().unwrap()).collect();
        let stored = f32s(&std::fs::read(dir.join(format!("{name}.logits.f32"))).unwrap());
        let of_second_half = &stored[stored.len() / 2..];
        let error = nmse(&reference::logits(&model, &tokens, tokens.len()), of_second_half);
        println!("{name:<10} NMSE {error:.1e}");
        assert!(error <= 1e-9, "{name}: NMSE {error}");
    }
}
