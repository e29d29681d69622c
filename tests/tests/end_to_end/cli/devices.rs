//! `plugins`, `devices`, `ops`, and the flags that choose devices.

use super::{json, stdout, text};
use llmrt_abi::DType;
use llmrt_tests::build::{fail, llmrt, plugin, succeed};
use llmrt_tests::fixtures::tokens;
use llmrt_tests::models::{TinyLlama, text as described};
use llmrt_tests::{f32s, nmse};
use serde_json::Value;

/// The row of a list whose `key` is `value`.
fn row<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|row| row[key] == value)
        .unwrap_or_else(|| panic!("{value} is not in {list}"))
}

#[test]
fn the_cpu_is_built_in() {
    let plugins = json(&mut llmrt(["plugins", "--json"]));
    assert!(row(&plugins, "name", "cpu")["file"].is_null());
    let devices = json(&mut llmrt(["devices", "--json"]));
    let cpu = row(&devices, "id", "cpu");
    assert_eq!((&cpu["kind"], &cpu["choice"]), (&Value::from("CPU"), &Value::from(1)));
    assert!(cpu["memory_free"].as_u64().unwrap() > 0);
}

#[test]
fn the_built_in_plugin_cannot_be_disabled_and_a_warning_reports_it() {
    let stderr =
        |disabled: &str| text(&succeed(llmrt(["devices"]).env("LLMRT_PLUGINS_DISABLE", disabled)).stderr);
    let warning = "warning: LLMRT_PLUGINS_DISABLE=cpu: cpu is built in and stays in use";
    assert!(stderr("cuda, cpu").contains(warning), "{}", stderr("cuda, cpu"));
    assert_eq!(stderr("*,c*"), "", "a pattern is for what is found");
}

#[test]
fn a_plugin_named_like_the_built_in_one_takes_its_place() {
    let so = plugin("cpu");
    let by_path = ["--plugin", so.to_str().unwrap(), "--backend", so.to_str().unwrap()];
    assert_eq!(json(llmrt(["devices", "--json"]).args(by_path))[0]["choice"], 1);
    let args = ["--plugin", so.to_str().unwrap(), "--backend", "libllmrt_cpu.so"];
    let devices = json(llmrt(["devices", "--json"]).args(args));
    assert_eq!(devices.as_array().unwrap().len(), 1);
    assert_eq!(devices[0]["file"], "libllmrt_cpu.so");
    let greedy = ["run", "--temp", "0", "-n", "8", "-p", "Once"];
    assert_eq!(text(&succeed(llmrt(greedy).args(args)).stdout), stdout(greedy));
}

#[test]
fn a_plugin_of_negative_priority_is_used_only_when_named() {
    let so = plugin("null");
    let null = ["--plugin", so.to_str().unwrap()];
    let unnamed = json(llmrt(["devices", "--json"]).args(null));
    let why = row(&unnamed, "id", "null")["unused_because"].as_str().unwrap();
    assert!(why.contains("only when named") && why.contains("--backend"), "{why}");
    let named = json(llmrt(["devices", "--json", "--backend", "null"]).args(null));
    assert_eq!(
        (&row(&named, "id", "null")["choice"], &row(&named, "id", "cpu")["choice"]),
        (&1.into(), &2.into())
    );
}

#[test]
fn devices_show_how_their_scratch_memory_is_managed() {
    let so = plugin("sim");
    let pool = |flags: &[&str], knob: &str| {
        let mut command = llmrt(["devices", "--json", "--plugin", so.to_str().unwrap()]);
        let devices = json(command.args(flags).env("LLMRT_POOL", knob));
        assert!(row(&devices, "id", "cpu")["pool"].is_null());
        row(&devices, "id", "sim:sim")["pool"].as_str().unwrap().to_string()
    };
    assert_eq!(pool(&[], ""), "vmm");
    assert_eq!(pool(&[], "legacy"), "legacy");
    assert_eq!(pool(&["--pool", "vmm"], "legacy"), "vmm");
    assert_eq!(pool(&["--plugin-option", "sim.vmm=no"], ""), "legacy");
    let table = |flags: &[&str]| stdout([&["devices", "--plugin", so.to_str().unwrap()], flags].concat());
    assert!(table(&["-v"]).lines().next().unwrap().ends_with("pool"));
    assert!(!table(&[]).lines().next().unwrap().contains("pool"));
}

/// Ids of the devices that are used, with a simulated chip at hand.
fn choices(args: &[&str]) -> Vec<String> {
    let so = plugin("sim");
    let devices = json(llmrt(["devices", "--json", "--plugin", so.to_str().unwrap()]).args(args));
    let mut rows: Vec<_> = devices.as_array().unwrap().iter().filter(|d| d["choice"].is_u64()).collect();
    rows.sort_by_key(|d| d["choice"].as_u64());
    rows.iter().map(|d| d["id"].as_str().unwrap().to_string()).collect()
}

#[test]
fn devices_of_a_plugin_go_by_name_group_or_index_after_the_colon() {
    assert_eq!(choices(&[]), ["cpu"]);
    assert_eq!(choices(&["--backend", "sim:910b,sim:small"]), ["sim:910b", "sim:small", "cpu"]);
    assert_eq!(choices(&["--backend", "sim:0"]), ["sim:310p", "cpu"]);
    assert_eq!(choices(&["--backend", "libllmrt_sim.so:small"]), ["sim:small", "cpu"]);
    let two = ["--plugin-option", "sim.devices=2", "--backend", "sim:small"];
    assert_eq!(choices(&two), ["sim:small.0", "sim:small.1", "cpu"]);
}

#[test]
fn options_reach_plugins_from_the_flag_and_from_the_knob() {
    let so = plugin("sim");
    let command = |options: &[&str], knob: &str| {
        let mut command = llmrt(["devices", "--json", "--plugin", so.to_str().unwrap()]);
        command.args(options.iter().flat_map(|option| ["--plugin-option", option]));
        command.env("LLMRT_PLUGIN_OPTIONS", knob);
        command
    };
    let memory = |options: &[&str], knob: &str| {
        row(&json(&mut command(options, knob)), "id", "sim:small")["memory_total"].as_u64().unwrap() >> 20
    };
    assert_eq!(memory(&[], ""), 64);
    assert_eq!(memory(&[], "sim.seed=3;sim.memory=5 MiB"), 5);
    assert_eq!(memory(&["sim.memory=7 MiB"], "sim.memory=5 MiB"), 7);

    let stderr = fail(&mut command(&["sim.memory=lots"], ""), 2);
    assert!(stderr.contains("option sim.memory=lots: `lots`: expected a whole number"), "{stderr}");
    let stderr = fail(&mut command(&[], "sim"), 2);
    assert!(stderr.contains("LLMRT_PLUGIN_OPTIONS=sim: expected KEY=VALUE"), "{stderr}");
    fail(&mut command(&["sim"], ""), 2);
}

#[test]
fn a_simulated_chip_shows_what_would_fall_back() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_embd: 256, dtype: DType::Q4_0, ..TinyLlama::default() }.write(dir.path());
    let so = plugin("sim");
    let mut inspect = llmrt(["inspect", "--placement", "--backend", "sim:310p", "--plugin"]);
    let text = text(&succeed(inspect.arg(so).arg(model)).stdout);
    assert!(text.contains("mul_mat on cpu instead of sim:310p: type (not for these types"), "{text}");
}

#[test]
fn experts_stay_on_the_cpu_where_a_rule_has_them_and_nothing_falls_back() {
    let dir = tempfile::tempdir().unwrap();
    let model = described::write(&described::descriptions().join("qwen3moe-8-experts.txt"), dir.path());
    let so = plugin("sim");
    let sim = ["--plugin", so.to_str().unwrap(), "--backend", "sim:sim", "--strict-device"];
    let nodes_on_cpu = |rules: &[&str]| {
        let mut inspect = llmrt(["inspect", "--placement", "--json", "-m"]);
        let file = json(inspect.arg(&model).args(sim).args(rules));
        row(&file["placement"]["devices"], "device", "cpu")["n_nodes"].as_u64().unwrap()
    };
    let experts = ["--tensor-placement", "ffn_.*_exps=cpu"];
    assert_eq!(nodes_on_cpu(&[]), 0);
    // Gate, up, their product and down of two layers; then of one.
    assert_eq!(nodes_on_cpu(&experts), 8);
    assert_eq!(nodes_on_cpu(&["-ot", "blk.1.ffn_.*_exps=CPU,none=cpu"]), 4);

    let logits = |rules: &[&str]| {
        let out = dir.path().join("logits");
        let mut eval = llmrt(["eval", "--logits", "all", "-m"]);
        eval.arg(&model).arg("--tokens-file").arg(tokens()).arg("--logits-out").arg(&out);
        succeed(eval.args(sim).args(rules));
        f32s(&std::fs::read(out).unwrap())
    };
    assert!(nmse(&logits(&experts), &logits(&[])) < 1e-9);

    let refused =
        |rules: &[&str]| fail(llmrt(["inspect", "--placement", "-m"]).arg(&model).args(sim).args(rules), 2);
    assert!(refused(&["-ot", "exps=card"]).contains("card is not among the devices in use, sim:sim, cpu"));
    assert!(refused(&["-ot", "exps"]).contains("expected REGEX=DEVICE"));
    assert!(refused(&["-ot", "exps=cpu", "--split", "row"]).contains("leave one out"));
}

#[test]
fn work_that_falls_back_is_reported_and_strict_refuses_it() {
    let so = plugin("null");
    let null = ["--plugin", so.to_str().unwrap(), "--backend", "null"];
    let greedy = ["run", "--temp", "0", "-n", "8", "-p", "Once"];
    let out = succeed(llmrt(greedy).args(null));
    assert_eq!(text(&out.stdout), stdout(greedy));
    assert!(text(&out.stderr).contains("ran elsewhere than on null"), "{}", text(&out.stderr));

    let verbose = text(&succeed(llmrt(greedy).args(null).arg("-v")).stderr);
    assert!(
        verbose.contains("mul_mat on cpu instead of null: op (it does not run this op; first: "),
        "{verbose}"
    );
    for command in [&greedy[..], &["inspect", "--placement"], &["plan"]] {
        let stderr = fail(llmrt(command).args(null).arg("--strict-device"), 5);
        assert!(stderr.contains("strict placement") && stderr.contains("mul_mat on cpu"), "{stderr}");
    }
}

#[test]
fn a_named_file_that_is_no_plugin_is_listed_with_the_reason_and_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("libllmrt_text.so");
    std::fs::write(&file, "no plugin").unwrap();
    let out = llmrt(["plugins", "--json", "--plugin"]).arg(&file).output().unwrap();
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
    let plugins: Value = serde_json::from_slice(&out.stdout).unwrap();
    let found = row(&plugins, "file", file.to_str().unwrap());
    assert_eq!(found["state"], "rejected");
    assert!(found["reason"].as_str().unwrap().contains("ELF"), "{found}");
    for command in [&["run", "-n", "1"][..], &["devices"], &["ops"], &["plan"]] {
        let stderr = fail(llmrt(command).arg("--plugin").arg(&file), 4);
        assert!(stderr.contains("libllmrt_text.so: rejected: ") && stderr.contains("ELF"), "{stderr}");
    }
}

#[test]
fn a_file_that_is_found_and_is_no_plugin_stops_no_command() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("libllmrt_text.so"), "no plugin").unwrap();
    for command in [&["run", "-n", "1"][..], &["plugins"]] {
        succeed(llmrt(command).env("LLMRT_PLUGIN_PATH", dir.path()));
    }
}

#[test]
fn a_plugin_that_is_found_and_has_no_device_here_is_reported_only_where_plugins_are_the_subject() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(plugin("fault"), dir.path().join("libllmrt_fault.so")).unwrap();
    // Its `init` fails, as that of a plugin for cards does where there is no card.
    let stderr = |command: &[&str]| {
        let mut llmrt = llmrt(command);
        llmrt.env("LLMRT_PLUGIN_PATH", dir.path());
        llmrt.env("LLMRT_PLUGIN_OPTIONS", "fault.wrap=null;fault.rule=init@1:oom");
        text(&succeed(&mut llmrt).stderr)
    };
    for command in [&["run", "-n", "1", "-p", "Once"][..], &["plan"], &["inspect", "--placement"]] {
        let stderr = stderr(command);
        assert!(!stderr.contains("fault"), "{command:?}: {stderr}");
    }
    for command in [&["devices"][..], &["devices", "-v"], &["run", "-v", "-n", "1", "-p", "Once"]] {
        let stderr = stderr(command);
        let n = stderr.matches("libllmrt_fault.so: not loaded: ").count();
        assert!(n == 1, "{command:?}: {stderr}");
    }
}

#[test]
fn a_device_that_is_not_there_is_answered_with_those_that_are() {
    let stderr = fail(&mut llmrt(["--backend", "cuda:0", "run"]), 2);
    assert!(stderr.contains("--backend cuda:0: there is no such device; there is cpu"), "{stderr}");
}

#[test]
fn the_cpu_runs_every_op() {
    let ops = json(&mut llmrt(["ops", "--json"]));
    for op in ops.as_array().unwrap() {
        assert!(op["devices"][0]["supported"].as_u64().unwrap() > 0, "{op}");
    }
    let types = &row(&ops, "op", "mul_mat")["devices"][0]["types"];
    for name in ["F32", "F16", "BF16", "Q4_0", "Q4_K", "Q6_K", "IQ4_NL", "IQ4_XS"] {
        assert!(types.as_array().unwrap().contains(&name.into()), "{name} is not in {types}");
    }
}

#[test]
fn knobs_are_listed_with_their_values() {
    let knobs = json(llmrt(["devices", "--knobs", "--json"]).env("LLMRT_SPIN_US", "7"));
    assert_eq!(row(&knobs, "name", "LLMRT_SPIN_US")["value"], "7");
    assert!(stdout(["devices", "--knobs"]).contains("LLMRT_PLUGIN_PATH"));
}
