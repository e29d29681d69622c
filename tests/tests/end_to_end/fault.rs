//! What a user sees when a device fails: each kind of fault, injected into a simulated device, while weights load and
//! while a step runs. Every run is a process of its own.

use llmrt_tests::build::{fail, llmrt, plugin, succeed};
use llmrt_tests::f32s;
use llmrt_tests::models::{TinyLlama, TinyMamba2};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// A small model, and the CPU's logits for some tokens of it, evaluated in steps of 7, 5, 1, 1 and 1 tokens.
struct Case {
    _dir: TempDir,
    model: PathBuf,
    expected: Vec<f32>,
}

fn case() -> &'static Case {
    static CASE: OnceLock<Case> = OnceLock::new();
    CASE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let model = TinyLlama::default().write(dir.path());
        let (expected, _) = logits(&mut llmrt([""; 0]), &model);
        Case { _dir: dir, model, expected }
    })
}

/// Logits of all tokens, and stderr.
fn logits(command: &mut Command, model: &PathBuf) -> (Vec<f32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("logits.f32");
    let stderr = succeed(eval(command, model).arg("--logits-out").arg(&out)).stderr;
    (f32s(&std::fs::read(out).unwrap()), String::from_utf8(stderr).unwrap())
}

fn eval<'a>(command: &'a mut Command, model: &PathBuf) -> &'a mut Command {
    let tokens = "3 10 17 24 31 38 45 52 59 66 73 80 87 94 101";
    command.args(["eval", "--tokens", tokens, "--logits", "all", "--chunks", "7,5,1", "-m"]).arg(model)
}

/// `llmrt` on a simulated device that goes wrong by these rules.
fn faulty(rules: &str) -> Command {
    let mut command = llmrt(["--plugin"]);
    command.arg(plugin("fault")).args(["--backend", "fault:sim", "--plugin-option", "fault.wrap=sim"]);
    command.args(["--plugin-option", "sim.queue=delay:50", "--plugin-option"]);
    command.arg(format!("fault.rule={rules}"));
    command
}

/// The run gives the CPU's logits in spite of the fault; returns stderr.
fn survives(command: &mut Command) -> String {
    let case = case();
    let (found, stderr) = logits(command, &case.model);
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(&found) == bits(&case.expected), "{command:?}\n{stderr}");
    stderr
}

/// The run survives and warns with these words.
fn warns(command: &mut Command, words: &[&str]) {
    let stderr = survives(command);
    let warning = stderr.lines().find(|line| line.contains("warning: "));
    let warning = warning.unwrap_or_else(|| panic!("{command:?}: no warning\n{stderr}"));
    for words in words {
        assert!(warning.contains(words), "{words}: {warning}");
    }
}

/// The run ends with this exit code and these words on stderr.
fn ends(command: &mut Command, exit_code: i32, words: &[&str]) {
    let stderr = fail(eval(command, &case().model), exit_code);
    for words in words {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}

#[test]
fn without_a_fault_the_wrapped_device_does_all_the_work() {
    let stderr = survives(faulty("").arg("-v"));
    assert!(!stderr.contains("warning: ") && !stderr.contains("fallback"), "{stderr}");
    assert!(stderr.contains("fault:sim"), "{stderr}");
}

/// Found in a folder, `fault` comes first; named, in the order of the names.
#[test]
fn a_plugin_is_used_by_itself_and_wrapped_whatever_is_loaded_first() {
    let folder = tempfile::tempdir().unwrap();
    let [fault, sim] = ["fault", "sim"].map(|name| {
        let to = folder.path().join(format!("libllmrt_{name}.so"));
        std::fs::copy(plugin(name), &to).unwrap();
        to
    });
    for named in [vec![], vec![&fault, &sim], vec![&sim, &fault]] {
        let mut command =
            llmrt(["--backend", "fault:sim,sim:sim", "--plugin-option", "fault.wrap=sim", "-v"]);
        match &named[..] {
            [] => _ = command.env("LLMRT_PLUGIN_PATH", folder.path()),
            _ => named.iter().for_each(|file| _ = command.arg("--plugin").arg(file)),
        }
        let stderr = survives(&mut command);
        assert!(!stderr.contains("not loaded"), "{named:?}: {stderr}");
        assert!(stderr.contains("fault:sim") && stderr.contains(" sim:sim"), "{named:?}: {stderr}");
    }
}

#[test]
fn a_device_lost_in_a_step_is_left_out_and_its_cache_is_computed_again() {
    for at in 1..=5 {
        let rule = format!("compute[mul_mat]@{at}:error:device");
        warns(
            &mut faulty(&rule),
            &[
                "fault:sim is not used any more: fault:sim: plan_compute answered DeviceLost: injected into compute",
            ],
        );
    }
    warns(&mut faulty("synchronize@4:error:device"), &["injected into synchronize", "computed again"]);
    warns(&mut faulty("get@3:error:device"), &["injected into get", "computed again"]);
}

#[test]
fn recurrent_states_that_a_lost_device_had_are_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyMamba2::default().write(dir.path());
    let (expected, _) = logits(&mut llmrt([""; 0]), &model);
    for at in 1..=5 {
        let (found, stderr) = logits(&mut faulty(&format!("compute[mul_mat]@{at}:error:device")), &model);
        assert!(stderr.contains("fault:sim is not used any more"), "{at}: {stderr}");
        assert!(found == expected, "{at}: {stderr}");
    }
}

/// The stream is made again and the step repeated: it reads what it read before.
#[test]
fn a_step_with_recurrent_states_is_repeated_after_a_lost_stream() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyMamba2::default().write(dir.path());
    let (expected, _) = logits(&mut llmrt([""; 0]), &model);
    for at in [1, 3, 5] {
        let (found, stderr) = logits(&mut faulty(&format!("compute[mul_mat]@{at}:error:stream")), &model);
        assert!(found == expected, "{at}: {stderr}");
    }
}

#[test]
fn a_plugin_that_breaks_in_a_step_is_left_out_with_all_its_devices() {
    let backend = "fault:sim,fault:small";
    let mut command = faulty("compute[mul_mat]@2:error:plugin");
    let stderr = survives(command.args(["--backend", backend, "-v"]));
    assert!(stderr.contains("warning: fault:sim is not used any more"), "{stderr}");
    assert!(
        stderr.contains("warning: fault:small is not used: ") && stderr.contains("quarantined"),
        "{stderr}"
    );
}

#[test]
fn another_device_takes_over_from_the_one_that_was_lost() {
    let mut command = faulty("compute[mul_mat]@2:error:device");
    let stderr = survives(command.args(["--backend", "fault:sim,fault:small", "-v"]));
    assert!(stderr.contains("warning: fault:sim is not used any more"), "{stderr}");
    let small = stderr.lines().find(|line| line.trim_start().starts_with("fault:small"));
    assert!(small.is_some_and(|line| !line.contains(" 0 nodes")), "{stderr}");
}

#[test]
fn a_device_lost_while_weights_load_is_left_out() {
    warns(&mut faulty("set@5:error:device"), &["fault:sim is not used: ", "injected into set"]);
    warns(&mut faulty("backend_create@2:error:device"), &["injected into backend_create"]);
    warns(&mut faulty("plan_create@1:error:plugin"), &["injected into plan_create"]);
}

#[test]
fn a_device_whose_memory_runs_out_is_left_out_and_the_bytes_are_reported() {
    for at in [2, 3, 4] {
        let words = ["fault:sim is not used: ", "1099511627776 bytes requested, 4096 available"];
        warns(&mut faulty(&format!("buffer_alloc@{at}:oom")), &words);
    }
}

#[test]
fn weights_that_cannot_be_sealed_stay_as_they_are() {
    let words = ["weights stay in the file's layout", "injected into seal"];
    warns(&mut faulty("seal@2:error:call"), &["fault:sim: 1 weights stay", words[0], words[1]]);
    warns(&mut faulty("seal:error:call"), &words);
    warns(&mut faulty("seal@2:oom"), &words);
    warns(&mut faulty("seal@2:error:device"), &["fault:sim is not used: ", "injected into seal"]);
}

#[test]
fn a_panic_in_a_call_is_an_error_of_the_plugin() {
    warns(
        &mut faulty("compute[mul_mat]@2:panic"),
        &["fault:sim is not used any more", "injected into compute"],
    );
    warns(&mut faulty("supports@1:panic"), &["injected into supports"]);
    ends(&mut faulty("init@1:panic"), 4, &["rejected: ", "injected into init"]);
}

#[test]
fn strict_placement_ends_with_the_error_instead() {
    let strict = |rules: &str, exit_code, words: &str| {
        ends(faulty(rules).arg("--strict-device"), exit_code, &[words]);
    };
    strict("compute[mul_mat]@2:error:device", 4, "fault:sim: plan_compute answered DeviceLost");
    strict("compute[mul_mat]@2:error:plugin", 4, "injected into compute");
    strict("set@5:error:device", 4, "injected into set");
    strict("buffer_alloc@2:oom", 6, "bytes requested, 4096 available");
    strict("compute[rms_norm]:unsupported", 5, "rms_norm on cpu instead of fault:sim");
}

#[test]
fn a_broken_stream_is_replaced_and_the_step_runs_again_without_a_message() {
    for rules in [
        "compute[mul_mat]@2:error:stream",
        "synchronize@4:error:stream",
        "compute[mul_mat]@1:error:stream, compute[mul_mat]@4:error:stream",
    ] {
        let stderr = survives(&mut faulty(rules));
        assert!(!stderr.contains("warning: "), "{rules}: {stderr}");
    }
}

#[test]
fn a_stream_that_breaks_again_at_once_ends_the_run() {
    let words = ["fault:sim: plan_compute answered Internal: injected into compute"];
    ends(&mut faulty("compute[mul_mat]@2+:error:stream"), 4, &words);
}

#[test]
fn an_error_of_one_call_ends_the_run_with_its_words() {
    ends(&mut faulty("compute[mul_mat]@2:error:call"), 4, &["injected into compute"]);
    ends(&mut faulty("set@5:error:call"), 4, &["tensor `", "injected into set"]);
}

#[test]
fn a_word_taken_back_moves_such_nodes_elsewhere() {
    let stderr = survives(faulty("compute[rms_norm]:unsupported").arg("-v"));
    assert!(stderr.contains("rms_norm on cpu instead of fault:sim: op"), "{stderr}");
}

#[test]
fn a_device_that_hangs_is_given_up_when_the_watchdog_is_on() {
    for rules in ["compute[mul_mat]@2:hang", "synchronize@4:hang"] {
        let mut command = faulty(rules);
        warns(command.env("LLMRT_WATCHDOG_MS", "700"), &["has not returned within 700ms", "computed again"]);
    }
}

#[test]
fn nonsense_is_noticed_when_a_token_is_picked() {
    let mut command = faulty("compute[mul_mat]@2+:nan");
    command.args(["run", "--temp", "0", "-n", "8", "-p", "abc"]).arg("-m").arg(&case().model);
    let stderr = fail(&mut command, 1);
    assert!(stderr.contains("is NaN: the model or a device computed non-finite logits"), "{stderr}");
}

#[test]
fn a_flipped_bit_shows_when_logits_are_compared() {
    let case = case();
    let (found, _) = logits(&mut faulty("compute[mul_mat]@2:flip"), &case.model);
    let n_rows = 15;
    let n_vocab = found.len() / n_rows;
    let differs = |row: usize| found[row * n_vocab..][..n_vocab] != case.expected[row * n_vocab..][..n_vocab];
    assert!((0..n_rows).filter(|&row| differs(row)).eq([7]), "the first row of the second step alone");
}

#[test]
fn an_abort_ends_the_process_and_nothing_else() {
    let out = eval(&mut faulty("compute[mul_mat]@2:abort"), &case().model).output().unwrap();
    assert_eq!(out.status.signal(), Some(6), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_text_goes_on_as_if_nothing_had_happened() {
    let run = |command: &mut Command| {
        command.args(["run", "--temp", "0", "-n", "24", "-p", "Once upon"]).arg("-m").arg(&case().model);
        let out = succeed(command);
        (out.stdout, String::from_utf8(out.stderr).unwrap())
    };
    let (expected, _) = run(&mut llmrt([""; 0]));
    let (found, stderr) = run(&mut faulty("compute[mul_mat]@9:error:device"));
    assert!(stderr.contains("warning: fault:sim is not used any more"), "{stderr}");
    assert_eq!(found, expected);
}

#[test]
fn a_plugin_that_fails_to_start_is_rejected_with_its_words() {
    ends(&mut faulty("init@1:error:plugin"), 4, &["rejected: ", "injected into init"]);
    // A value that an option cannot have is wrong usage.
    ends(&mut faulty("walk@1:oom"), 2, &["plugin option fault.rule=walk@1:oom", "there is no call `walk`"]);
}
