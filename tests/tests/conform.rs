//! `llmrt conform` passes what is right and finds, and names, what is wrong; `llmrt diff` finds the op that differs.
//!
//! The plugin is `tests/plugins/faulty.cpp`: right as it stands, wrong in one way when the environment says so.

use llmrt_tests::build::{llmrt, plugin, succeed};
use llmrt_tests::models::TinyLlama;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The plugin's file; `None`, with a message, where there is no C++ compiler.
fn faulty() -> Option<&'static Path> {
    static FILE: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = FILE.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = dir.path().join("libllmrt_faulty.so");
        let mut cc = Command::new("c++");
        cc.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-pthread"]);
        cc.arg("-I")
            .arg(root.join("../abi/include"))
            .arg(root.join("plugins/faulty.cpp"))
            .arg("-o")
            .arg(&out);
        let Ok(output) = cc.output() else {
            println!("skipped: c++ does not start");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some((dir, out))
    });
    built.as_ref().map(|(_, path)| path.as_path())
}

fn report(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| {
        panic!("{e}\n{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    })
}

/// Runs conform on the plugin with a fault; the exit code and the report.
fn conform(fault: &str, flags: &str) -> Option<(i32, Value)> {
    let mut command = llmrt(["conform", "--json", "-"]);
    command.args(flags.split_whitespace()).arg(faulty()?).env("LLMRT_TEST_FAULT", fault);
    let out = command.output().unwrap();
    Some((out.status.code().unwrap(), report(&out)))
}

/// The fault is found by a case whose name and reason have these words.
fn check(fault: &str, flags: &str, words: &[&str]) {
    let Some((code, report)) = conform(fault, flags) else { return };
    assert_eq!(code, 7, "{fault}: {report:#}");
    let failed = report["failed"].as_array().unwrap();
    let told = |f: &Value| format!("{}: {}", f["name"].as_str().unwrap(), f["reason"].as_str().unwrap());
    let found = failed.iter().map(told).any(|text| words.iter().all(|word| text.contains(word)));
    assert!(found, "{fault}: no failed case with {words:?}: {:#}", report["failed"]);
    assert_eq!(report["cases_failed"].as_u64(), Some(failed.len() as u64));
}

#[test]
fn the_whole_plugin_passes() {
    let Some((code, report)) = conform("", "") else { return };
    assert_eq!((code, report["cases_failed"].as_u64()), (0, Some(0)), "{:#}", report["failed"]);
    assert_eq!((&report["plugin"], &report["device"]), (&"faulty".into(), &"faulty".into()));
    assert!(report["ops"]["mul_mat"]["run"].as_u64() > Some(0) && report["cases_run"].as_u64() > Some(80));
    assert!(report["cases_skipped"].as_u64() > Some(500), "what it does not claim is skipped, not passed");
    assert!(report["support"]["add"]["F32"][0].as_u64() > Some(0));
    assert_eq!(report["support"]["rope"]["F32"][0].as_u64(), Some(0));
}

#[test]
fn wrong_results_are_found() {
    check("wrong_value", "--ops mul_mat --level L3", &["L3 mul_mat", "NMSE", "expected"]);
    check("differs_by_run", "--ops mul --level L3", &["L3 mul:", "different bits"]);
}

#[test]
fn bytes_written_where_nobody_may_are_found() {
    check("writes_behind", "--ops mul --level L3", &["L3 mul:", "out of bounds", "behind"]);
    check("writes_its_source", "--ops mul --level L3", &["L3 mul:", "out of bounds", "of source 1"]);
    check("fills_too_much", "--level L1", &["L1 memory: fill sets its range", "byte"]);
    check("loses_odd_bytes", "--level L1", &["L1 memory: bytes at odd offsets"]);
}

#[test]
fn work_that_is_not_waited_for_is_found() {
    check("does_not_synchronize", "--level L2", &["L2 streams: work is done when synchronize returns"]);
    check("event_ignored", "--level L2", &["L2 events: a stream that waits", "event ignored"]);
    check("event_too_early", "--level L2", &["L2 events: work before a reached event", "event ignored"]);
}

#[test]
fn memory_faults_are_found() {
    check("leaks", "--level L1", &["L1 memory: freed buffers", "leak"]);
    check("misaligned", "--level L1", &["L1 memory: buffers are aligned", "promises multiples of 64"]);
    check("forgets_bytes", "--level L1", &["L1 memory: memory that is not there", "0 bytes were requested"]);
    check("wrong_after_seal", "--level L1", &["L1 seal", "get after seal"]);
}

#[test]
fn untrue_answers_are_found() {
    check("changes_its_mind", "--ops mul --level L3", &["L3 mul:", "supports is not pure"]);
    check("wants_to_be_alone", "--ops add --level L3", &["supports is not pure", "of three"]);
    check("lies", "--ops sub --level L3", &["L3 sub:", "supports said yes, and then"]);
    check("ignores_tail", "--ops add --level L5", &["non-zero tail", "supports said yes"]);
    check("knows_everything", "--level L0", &["unknown extension", "expected NULL"]);
    check("starts_once", "--level L0", &["it starts again after shutdown", "started before"]);
    check("catches_signals", "--level L0", &["it installs no signal handler"]);
}

#[test]
fn what_ends_or_stops_the_process_is_one_failed_case_and_named() {
    check("throws", "--ops mul --level L3", &["L3 mul:", "SIGABRT"]);
    check("panics", "--ops mul --level L3", &["L3 mul:", "SIGABRT", "index out of bounds"]);
    check("aborts", "--ops mul_mat --level L3", &["L3 mul_mat:", "SIGABRT"]);
    check("segfaults", "--ops mul_mat --level L3", &["L3 mul_mat:", "SIGSEGV"]);
    check("exits", "--ops mul --level L3", &["L3 mul:", "exit code 0"]);
    check("prints", "--ops mul --level L3", &["L3 mul:", "wrote to stdout: `hello from the driver`"]);
    check("hangs", "--ops mul --level L3 --time-limit 2", &["L3 mul:", "did not end within 2 s"]);
    check("crashes_at_exit", "--level L0", &["a process that used the device ends", "SIGABRT"]);
}

#[test]
fn a_crash_costs_its_case_and_no_other() {
    let Some((code, report)) = conform("aborts", "--ops mul_mat|add --level L3 --jobs 1") else { return };
    let run = |op: &str| (report["ops"][op]["run"].as_u64(), report["ops"][op]["failed"].as_u64());
    let Some((_, whole)) = conform("", "--ops mul_mat|add --level L3") else { return };
    assert_eq!(code, 7);
    assert_eq!(run("mul_mat").0, whole["ops"]["mul_mat"]["run"].as_u64());
    assert_eq!(run("mul_mat").0, run("mul_mat").1, "every product aborts");
    assert_eq!(run("add"), (whole["ops"]["add"]["run"].as_u64(), Some(0)), "and no sum does");
}

#[test]
fn the_cpu_passes_a_part_of_every_level_and_op() {
    let out = succeed(llmrt(["conform", "--json", "-", "--part", "2/7"]).arg(plugin("cpu")));
    let report = report(&out);
    assert_eq!(report["cases_failed"], 0);
    assert!(report["cases_run"].as_u64() > Some(80), "{report:#}");
}

#[test]
fn a_device_without_ops_passes_what_it_claims() {
    let report = report(&succeed(llmrt(["conform", "--json", "-"]).arg(plugin("null"))));
    assert_eq!((&report["cases_failed"], &report["levels"]["L3"]["run"]), (&0.into(), &0.into()));
    assert!(report["levels"]["L1"]["run"].as_u64() > Some(15));
}

#[test]
fn parts_are_all_cases_once() {
    let list = |flags: &[&str]| -> Vec<String> {
        let out = succeed(llmrt(["conform", "--list"]).args(flags).arg("libllmrt_absent.so"));
        String::from_utf8(out.stdout).unwrap().lines().map(String::from).collect()
    };
    let all = list(&[]);
    let mut parts: Vec<_> = (1..=5).flat_map(|i| list(&["--part", &format!("{i}/5")])).collect();
    let mut sorted = all.clone();
    sorted.sort();
    parts.sort();
    assert_eq!(sorted, parts);
    sorted.dedup();
    assert_eq!(sorted.len(), all.len(), "every case has a name of its own");
    assert!(list(&["--level", "L3", "--ops", "rope"]).iter().all(|name| name.starts_with("L3 rope: ")));
}

#[test]
fn what_is_no_plugin_fails() {
    let out = llmrt(["conform", "libllmrt_absent.so"]).output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&out.stdout).contains("cannot be found"));
}

#[test]
fn diff_finds_the_op_that_differs_and_conform_runs_it_alone() {
    let Some(file) = faulty() else { return };
    let dir = TempDir::new().unwrap();
    let repro = dir.path().join("wrong.repro");
    let model = TinyLlama::default().write(dir.path());
    let mut diff = llmrt(["--plugin"]);
    diff.arg(file).args(["diff", "--b", "faulty", "--repro"]).arg(&repro).arg(&model);
    let out = diff.env("LLMRT_TEST_FAULT", "wrong_value").output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(7), "{told}");
    assert!(told.contains("mul_mat") && told.contains("NMSE") && told.contains("F32 ["), "{told}");

    let alone = |fault| {
        let mut command = llmrt(["conform", "--json", "-", "--repro"]);
        report(&command.arg(&repro).arg(file).env("LLMRT_TEST_FAULT", fault).output().unwrap())
    };
    assert_eq!(alone("wrong_value")["cases_failed"], 1);
    assert_eq!(alone("")["cases_failed"], 0);
    assert_eq!(alone("")["cases_run"], 1);
}

#[test]
fn equal_devices_do_not_differ() {
    let Some(file) = faulty() else { return };
    let mut diff = llmrt(["--plugin"]);
    diff.arg(file).args(["diff", "--b", "faulty", "--all", "--tokens", "1 5 9"]);
    let text = String::from_utf8(succeed(&mut diff).stdout).unwrap();
    assert!(text.contains("none over its limit") && text.contains("not run: op"), "{text}");
}

#[test]
fn nodes_of_a_model_become_cases() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/assets/stories.gguf");
    let mut command = llmrt(["conform", "--json", "-", "--level", "L3", "--ops", "attention|rope|rms_norm"]);
    let report = report(&succeed(command.arg("--from-model").arg(model).arg(plugin("cpu"))));
    let mut listing = llmrt(["conform", "--list", "--level", "L3", "--ops", "attention|rope|rms_norm"]);
    let plain = String::from_utf8(succeed(listing.arg("x.so")).stdout).unwrap().lines().count();
    let n = report["cases_run"].as_u64().unwrap() + report["cases_skipped"].as_u64().unwrap();
    assert!(n as usize > plain, "{n} cases with the model, {plain} without");
}
