//! `llmrt conform` passes what is right and finds, and names, what is wrong; `llmrt diff` finds the op that differs.
//!
//! The plugin is `tests/plugins/faulty.cpp`: right as it stands, wrong in one way that the environment selects.

use llmrt_tests::build::{bin_dir, llmrt, plugin, succeed};
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
            llmrt_tests::skip::skipped("c++ does not start");
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
    let line = |f: &Value| format!("{}: {}", f["name"].as_str().unwrap(), f["reason"].as_str().unwrap());
    let found = failed.iter().map(line).any(|text| words.iter().all(|word| text.contains(word)));
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
fn bytes_written_out_of_bounds_are_found() {
    check("writes_past_the_end", "--ops mul --level L3", &["L3 mul:", "out of bounds", "past"]);
    check("writes_its_source", "--ops mul --level L3", &["L3 mul:", "out of bounds", "of source 1"]);
    check("fills_too_much", "--level L1", &["L1 memory: fill sets its range", "byte"]);
    check("loses_odd_bytes", "--level L1", &["L1 memory: bytes at odd offsets"]);
}

#[test]
fn work_that_is_not_waited_for_is_found() {
    check("does_not_synchronize", "--level L2", &["L2 streams: work is done when synchronize returns"]);
    check("set_while_idle_only", "--level L2", &["L2 streams: set and get beside", "a stream is busy"]);
    check("event_ignored", "--level L2", &["L2 events: a stream that waits", "event ignored"]);
    check("event_too_early", "--level L2", &["L2 events: work before a reached event", "event ignored"]);
}

#[test]
fn memory_faults_are_found() {
    check("leaks", "--level L1", &["L1 memory: freed buffers", "leak"]);
    check("misaligned", "--level L1", &["L1 memory: buffers are aligned", "promises multiples of 64"]);
    check("names_a_node", "--level L1", &["L1 memory: memory that is not there", "names node"]);
    check("forgets_bytes", "--level L1", &["L1 memory: memory that is not there", "has 0 bytes requested"]);
    check("wrong_after_seal", "--level L1", &["L1 seal", "get after seal"]);
}

#[test]
fn leaks_are_found_however_small() {
    check(
        "leaks_in_compute",
        "--level L1",
        &["L1 memory: computing over and over", "leak", "allocated memory"],
    );
    check("leaks_in_compute", "--ops mul --level L3", &["L3 mul: computed over and over", "leak"]);
    check("leaks_pages_in_compute", "--ops mul --level L3", &["L3 mul: computed over and over", "leak"]);
    check(
        "leaks_device_memory_in_compute",
        "--ops add --level L3",
        &["L3 add:", "leak", "memory of the device"],
    );
    check("leaks_on_the_device", "--level L1", &["L1 memory: freed buffers", "memory of the device"]);
    check("leaks_a_little_per_buffer", "--level L1", &["L1 memory: freed buffers", "leak"]);
    check("leaks_a_little_per_stream", "--level L1", &["L1 memory: freed streams", "leak"]);
    check("leaks_a_little_per_event", "--level L1", &["L1 memory: freed events", "leak"]);
}

#[test]
fn memory_that_is_not_counted_is_found() {
    check("memory_stands_still", "--level L1", &["L1 memory: memory() counts", "with a buffer of"]);
    check("more_free_than_total", "--level L1", &["L1 memory: memory() counts", "bytes free of"]);
}

#[test]
fn broken_streams_that_recover_or_spread_are_found() {
    check(
        "forgets_errors",
        "--level L2",
        &["errors of stream scope stay", "not sticky", "compute answered: OK"],
    );
    check("forgets_in_record", "--level L2", &["errors of stream scope stay", "event_record answered: OK"]);
    check(
        "breaks_all_streams",
        "--level L2",
        &["leave other streams alone", "another stream, beside the broken one"],
    );
}

#[test]
fn layouts_that_differ_from_their_description_are_found() {
    check("stores_more", "--level L1", &["L1 seal", "stored_bytes is", "bytes past them are used"]);
    check("stores_too_much", "--level L1", &["L1 seal", "bytes; alloc_size is"]);
    check("seal_writes_past_the_end", "--level L1", &["L1 seal", "seal wrote byte"]);
    check("wrong_parts_after_seal", "--level L1", &["L1 seal: parts", "get after seal"]);
    check("wrong_slices", "--level L1", &["L1 seal: slices", "every 1 rows", "came back otherwise"]);
    check("coarse_slices", "--level L1", &["L1 seal: slices", "slices of 1000 rows"]);
    check("ignores_layout", "--ops mul_mat --level L5", &["L5 mul_mat", "layout", "which it never made"]);
}

#[test]
fn hosts_of_other_versions_are_not_forgotten() {
    check("ignores_stride", "--ops add --level L5", &["L5 add: rows of a newer host", "tensor_stride"]);
    check(
        "requires_whole_params",
        "--ops scale --level L5",
        &["params without their last zeros", "what is missing is zero"],
    );
    check("reads_past_params", "--ops scale --level L5", &["params without their last zeros"]);
    check("ignores_sources", "--ops add --level L5", &["does not have is refused", "and 3 sources"]);
    check("counts_absent_sources", "--ops add --level L5", &["left out at the end", "3 rows of sources"]);
    check("trusts_option_length", "--level L5", &["options with values that make no sense", "SIGSEGV"]);
}

#[test]
fn cancelling_ends_one_run_and_no_other() {
    check("cancels_neighbours", "--level L5", &["a run goes on beside a cancelled one", "Cancelled"]);
    check("stays_cancelled", "--level L5", &["a cancelled run ends, and the stream goes on", "Cancelled"]);
    check("cancel_breaks_stream", "--level L5", &["broke more than itself"]);
}

#[test]
fn streams_that_share_scratch_memory_are_found() {
    check(
        "static_scratch",
        "--ops mul --level L3",
        &["L3 mul: two streams compute it at once", "disturb each other"],
    );
}

/// Conform on the driver in Rust that panics in a call.
fn panicking(call: &str, flags: &str) -> (i32, Value) {
    let mut command = llmrt(["conform", "--json", "-", "--plugin-option"]);
    command
        .arg(format!("panics.in={call}"))
        .args(flags.split_whitespace())
        .arg(bin_dir().join("libtest_plugin_panics.so"));
    let out = command.output().unwrap();
    (out.status.code().unwrap(), report(&out))
}

#[test]
fn panics_become_errors_and_are_named() {
    let (code, whole) = panicking("", "");
    assert_eq!((code, &whole["cases_failed"]), (0, &0.into()), "{:#}", whole["failed"]);
    assert!(whole["ops"]["add"]["run"].as_u64() > Some(0));
    for (call, flags) in [
        ("init", "--level L0"),
        ("open", "--level L0"),
        ("memory", "--level L1"),
        ("supports", "--ops add --level L3"),
        ("alloc", "--level L1"),
        ("set", "--level L1"),
        ("stream", "--level L2"),
        ("compute", "--ops add --level L3"),
        ("synchronize", "--level L2"),
    ] {
        let (code, report) = panicking(call, flags);
        let failed = report["failed"].as_array().unwrap();
        let reasons: Vec<_> = failed.iter().map(|f| f["reason"].as_str().unwrap()).collect();
        let words = format!("panics on request in {call}");
        assert!(code == 7 && reasons.iter().any(|r| r.contains(&words)), "{call}: {reasons:#?}");
        assert!(
            !reasons.iter().any(|r| r.contains("SIGABRT")),
            "{call}: a panic left the plugin: {reasons:#?}"
        );
    }
}

#[test]
fn a_wrapped_device_keeps_its_injected_stream_error() {
    // 2147483633 is the op number by which conform requests a broken stream.
    let mut command = llmrt(["conform", "--json", "-", "--level", "L2"]);
    command.args(["--device", "sim", "--plugin-option", "fault.wrap=sim"]);
    command.args(["--plugin-option", "fault.rule=compute[2147483633]:error:stream"]);
    let report = report(&succeed(command.arg(plugin("fault"))));
    assert_eq!(report["cases_failed"], 0, "{:#}", report["failed"]);
    let mut healthy = llmrt(["conform", "--json", "-", "--level", "L2", "--device", "sim"]);
    healthy.args(["--plugin-option", "fault.wrap=sim"]).arg(plugin("fault"));
    let healthy = self::report(&succeed(&mut healthy));
    let skipped = |r: &Value| r["cases_skipped"].as_u64().unwrap();
    assert_eq!(skipped(&healthy), skipped(&report) + 3, "the three cases of broken streams ran");
}

#[test]
fn a_tiny_repro_file_that_requires_terabytes_is_refused_at_once() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("hostile.repro");
    let tensor = "tensor F32 computed 0 1000000000000 1 1 1 4 4 4 4 0";
    let text = format!("llmrt-repro 1\nname x\nop sqr\nparams -\nnmse 1\n{tensor}\nsrc 0\ndst 0\ndata\n");
    std::fs::write(&file, text).unwrap();
    let started = std::time::Instant::now();
    let out = llmrt(["conform", "--repro"]).arg(&file).arg(plugin("null")).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && stderr.contains("line 6") && stderr.contains("requests"), "{stderr}");
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn untrue_answers_are_found() {
    check("changes_its_mind", "--ops mul --level L3", &["L3 mul:", "supports is not pure"]);
    check("requires_a_graph_of_one_node", "--ops add --level L3", &["supports is not pure", "of three"]);
    check("retracts", "--ops sub --level L3", &["L3 sub:", "supports accepted it, and then"]);
    check("ignores_tail", "--ops add --level L5", &["non-zero tail", "supports accepted"]);
    check("has_every_extension", "--level L0", &["unknown extension", "expected NULL"]);
    check("starts_once", "--level L0", &["it starts again after shutdown", "started before"]);
    check("catches_signals", "--level L0", &["it installs no signal handler"]);
}

#[test]
fn what_ends_or_stops_the_process_is_one_failed_case_and_named() {
    check("throws", "--ops mul --level L3", &["L3 mul:", "SIGABRT"]);
    check("asserts", "--ops mul --level L3", &["L3 mul:", "SIGABRT", "index out of bounds"]);
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

/// Conform on a simulated device; the exit code and the report.
fn conform_sim(options: &[&str], flags: &str) -> (i32, Value) {
    let mut command = llmrt(["conform", "--json", "-"]);
    options.iter().for_each(|option| _ = command.args(["--plugin-option", option]));
    let out = command.args(flags.split_whitespace()).arg(plugin("sim")).output().unwrap();
    (out.status.code().unwrap(), report(&out))
}

#[test]
fn simulated_devices_pass_in_every_queue_mode() {
    for device in ["sim:sim", "910b", "310p", "small"] {
        for queue in ["now", "delay:200", "sync"] {
            let flags = format!("--level L0..L2,L4,L5 --device {device} --ops mul_mat|add");
            let queue = format!("sim.queue={queue}");
            for flags in [flags.as_str(), &format!("--level L0..L2 --device {device}")] {
                let (code, report) = conform_sim(&[&queue], flags);
                assert_eq!(code, 0, "{device}, {queue}: {:#}", report["failed"]);
            }
        }
    }
}

/// How many cases with this in their name failed.
fn n_failed(report: &Value, words: &str) -> usize {
    let failed = report["failed"].as_array().unwrap().iter();
    failed.filter(|f| f["name"].as_str().unwrap().contains(words)).count()
}

/// How many were skipped for a reason with these words.
fn n_skipped(report: &Value, words: &str) -> u64 {
    let rows = report["skipped"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["reason"].as_str().unwrap().contains(words));
    rows.map(|row| row["cases"].as_u64().unwrap()).sum()
}

#[test]
fn pools_of_both_kinds_are_tested_where_a_device_has_them() {
    const NO_VMM: &str = "without virtual addresses";
    const NO_POOL: &str = "the device offers no memory for pools";
    for (options, without_vmm) in [("sim.queue=delay:100", 0), ("sim.vmm=no", 4)] {
        let (code, report) = conform_sim(&[options], "--level L1,L4,L5 --device sim:sim");
        assert_eq!(code, 0, "{:#}", report["failed"]);
        assert_eq!((n_skipped(&report, NO_VMM), n_skipped(&report, "for pools")), (without_vmm, without_vmm));
    }
    let cpu = report(&succeed(llmrt(["conform", "--json", "-", "--level", "L1"]).arg(plugin("cpu"))));
    assert_eq!(n_skipped(&cpu, NO_POOL), 4);
}

#[test]
fn scratch_memory_that_is_used_wrongly_is_found() {
    let check = |fault: &str, words: &str| {
        let (code, report) = conform_sim(&[&format!("sim.faults={fault}")], "--level L1 --device sim:sim");
        let failed = report["failed"].as_array().unwrap();
        let is_it = |f: &Value| {
            f["name"].as_str().unwrap().starts_with("L1 pool:")
                && f["reason"].as_str().unwrap().contains(words)
        };
        assert!(code == 7 && failed.iter().any(is_it), "{fault}: {failed:#?}");
        assert_eq!(n_failed(&report, "L1 pool:"), failed.len(), "{fault}: nothing else fails");
    };
    check("frees_twice", "where nothing is in use");
    check("frees_in_order", "but the last allocation is");
    check("keeps_scratch", "leak: ");
    check("stages_early", "expected");
}

#[test]
fn an_event_of_another_device_that_is_ignored_is_found() {
    for devices in ["sim.devices=1", "sim.devices=2"] {
        let flags = "--level L2 --device 910b";
        let flags = if devices.ends_with('2') { flags.replace("910b", "910b.1") } else { flags.into() };
        let (code, report) = conform_sim(&[devices, "sim.faults=ignores_events"], &flags);
        let across = "a device that waits for another one's event sees its work";
        assert_eq!((code, n_failed(&report, across)), (7, 1), "{:#}", report["failed"]);
        assert_eq!(conform_sim(&[devices], &flags).0, 0);
    }
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
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(3), &b""[..]), "{stderr}");
    assert!(stderr.contains("libllmrt_absent.so: the plugin cannot be read"), "{stderr}");

    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let out = llmrt(["conform", manifest]).output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&out.stdout).contains("not an ELF file"));
}

#[test]
fn a_run_ends_at_the_limit_of_failures() {
    let flags = "--level L3 --ops mul_mat --jobs 1 --max-failures 2";
    let Some((code, report)) = conform("wrong_value", flags) else { return };
    assert_eq!((code, report["cases_failed"].as_u64()), (7, Some(2)));
    assert!(report["skipped"].to_string().contains("--max-failures"), "{report:#}");
}

#[test]
fn a_report_states_what_was_tested_and_by_which_release() {
    let report = report(&succeed(llmrt(["conform", "--json", "-", "--level", "L0"]).arg(plugin("null"))));
    assert_eq!(report["llmrt"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["sha256"].as_str().map(str::len), Some(64));
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
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(7), "{stderr}");
    assert!(stderr.contains("mul_mat") && stderr.contains("NMSE") && stderr.contains("F32 ["), "{stderr}");

    let alone = |fault| {
        let mut command = llmrt(["conform", "--json", "-", "--repro"]);
        report(&command.arg(&repro).arg(file).env("LLMRT_TEST_FAULT", fault).output().unwrap())
    };
    assert_eq!(alone("wrong_value")["cases_failed"], 1);
    assert_eq!(alone("")["cases_failed"], 0);
    assert_eq!(alone("")["cases_run"], 1);
}

#[test]
fn a_plugin_without_its_hardware_is_skipped_and_not_failed() {
    let Some(file) = faulty() else { return };
    let mut command = llmrt(["conform", "--json", "-"]);
    let out = command.arg(file).env("LLMRT_TEST_FAULT", "finds_no_device").output().unwrap();
    let (stderr, report) = (String::from_utf8_lossy(&out.stderr).into_owned(), report(&out));
    assert_eq!((out.status.code(), report["cases_failed"].as_u64()), (Some(4), Some(0)), "{stderr}");
    assert!(report["cases_skipped"].as_u64() > Some(500));
    assert!(
        stderr.contains("the plugin found no device, so ") && stderr.contains("cases were skipped"),
        "{stderr}"
    );
}

#[test]
fn a_diff_that_compared_nothing_does_not_pass() {
    let mut diff = llmrt(["--plugin"]);
    let out = diff.arg(plugin("null")).args(["diff", "--b", "null"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("so nothing was compared: choose another device"), "{stderr}");
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
