//! `llmrt conform --from-model` and `llmrt diff` with the plugins of this tree: a right device passes every node it
//! claims; a faulty one's first op is found, kept in a file, and run alone.

use llmrt_tests::build::{llmrt, plugin, succeed};
use llmrt_tests::compile::c_example;
use llmrt_tests::fixtures::{fixtures, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn stories() -> PathBuf {
    root().join("cli/assets/stories.gguf")
}

fn report(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| {
        panic!("{e}\n{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    })
}

/// Cases of L3 that are run of each of these ops, with the nodes of `model` among them or not; none fails.
fn n_run(file: &Path, flags: &str, ops: &str, model: Option<&Path>) -> Vec<u64> {
    let pattern = ops.replace(' ', "|");
    let mut command = llmrt(["conform", "--json", "-", "--level", "L3", "--ops", &pattern]);
    command.args(flags.split_whitespace());
    command.args(model.iter().flat_map(|model| [Path::new("--from-model"), model]));
    let report = report(&succeed(command.arg(file)));
    assert_eq!(report["cases_failed"], 0, "{}: {:#}", file.display(), report["failed"]);
    ops.split(' ').map(|op| report["ops"][op]["run"].as_u64().unwrap()).collect()
}

/// Every model has nodes of each of these ops that the plugin runs.
fn check_nodes(file: &Path, flags: &str, ops: &str, models: &[PathBuf]) {
    let without = n_run(file, flags, ops, None);
    for model in models {
        let with = n_run(file, flags, ops, Some(model));
        let more = with.iter().zip(&without).all(|(with, without)| with > without);
        assert!(more, "{}, {}: {ops}: {with:?}, without {without:?}", model.display(), file.display());
    }
}

#[test]
fn every_node_of_a_model_passes_where_it_is_claimed() {
    let small: Vec<_> = fixtures("archs")
        .map(|dir| ["llama-moe", "gemma2-dense"].map(|name| dir.join(format!("{name}.gguf"))))
        .into_iter()
        .flatten()
        .collect();
    let all = [small.as_slice(), &[stories()]].concat();
    let ops = "mul_mat add rms_norm rope set_rows get_rows attention glu";
    check_nodes(&plugin("cpu"), "", ops, &all);
    check_nodes(&plugin("sim"), "--device sim:sim --plugin-option sim.queue=sync", ops, &all);
    if let Some(file) = c_example(env!("CARGO_TARGET_TMPDIR")) {
        // The stories' matrices are F16.
        check_nodes(file, "", "add", &all);
        check_nodes(file, "", "add mul_mat", &small);
    }
}

#[test]
fn devices_that_compute_alike_do_not_differ() {
    let check = |file: &Path, device: &str, words: &str| {
        let mut command = llmrt(["--plugin"]);
        command.arg(file).args(["diff", "--a", "cpu", "--b", device]).arg(stories());
        let text = String::from_utf8(succeed(&mut command).stdout).unwrap();
        assert!(text.contains("none over its limit") && text.contains(words), "{device}: {text}");
    };
    check(&plugin("sim"), "sim:910b", "0 not run by sim:910b");
    check(&plugin("sim"), "sim:310p", "not run by sim:310p");
    if let Some(file) = c_example(env!("CARGO_TARGET_TMPDIR")) {
        check(file, "c", "not run by c");
    }
}

/// A device that goes wrong at this rule: `diff` names the op with these words and keeps it in a file, with which
/// `conform` fails by the rule `alone`, and passes on the CPU.
fn check_fault(rule: &str, alone: &str, words: &[&str]) {
    let dir = TempDir::new().unwrap();
    let repro = dir.path().join("wrong.repro");
    let options = |rule: &str| ["fault.wrap=sim".to_string(), format!("fault.rule={rule}")];
    let with_options = |command: &mut Command, rule: &str| {
        command.args(options(rule).iter().flat_map(|option| ["--plugin-option", option]));
    };
    let mut diff = llmrt(["--plugin"]);
    diff.arg(plugin("fault")).args(["diff", "--b", "fault:sim", "--repro"]).arg(&repro).arg(stories());
    with_options(&mut diff, rule);
    let out = diff.env("LLMRT_WATCHDOG_MS", "700").output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(7), "{rule}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{rule}: no `{word}` in {stderr}");
    }

    let run = |file: &Path, rule: Option<&str>| {
        let mut command = llmrt(["conform", "--json", "-", "--time-limit", "5", "--repro"]);
        command.arg(&repro).arg(file);
        if let Some(rule) = rule {
            command.args(["--device", "fault:sim"]);
            with_options(&mut command, rule);
        }
        let report = report(&command.output().unwrap());
        assert_eq!(report["cases_run"], 1, "{rule:?}: {report:#}");
        report["cases_failed"].as_u64().unwrap()
    };
    assert_eq!(run(&plugin("fault"), Some(alone)), 1, "{rule}");
    assert_eq!(run(&plugin("fault"), Some("")), 0, "{rule}");
    assert_eq!(run(&plugin("cpu"), None), 0, "{rule}");
}

#[test]
fn the_op_of_a_faulty_device_is_found_kept_and_run_alone() {
    check_fault("compute[rms_norm]@3:flip", "compute:flip", &["rms_norm `attn_norm-1`", "NMSE"]);
    check_fault(
        "compute[mul_mat]@2:nan",
        "compute:nan",
        &["mul_mat `attn_k-0`", "element [0, 0, 0, 0] is NaN"],
    );
    check_fault(
        "compute[glu]@1:error:call",
        "compute:error:call",
        &["glu `", "failed on fault:sim", "injected"],
    );
    check_fault("compute[rope]@2:hang", "compute:hang", &["rope `Kcur-0`", "has not returned within"]);
}
