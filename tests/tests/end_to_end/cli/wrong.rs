//! Flags and files that make no sense: an exit code, and a message that names them and what would make sense.

use llmrt_tests::build::{fail, llmrt, plugin, succeed};

fn check(args: &str, exit_code: i32, expected: &str) {
    let stderr = fail(&mut llmrt(args.split_whitespace()), exit_code);
    assert!(stderr.contains(expected), "{args}: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn flags_that_make_no_sense_are_wrong_usage() {
    check("run -c -1", 2, "'-1' for '--ctx <N>': expected a whole number, 0 or more");
    check(
        "run -s abc",
        2,
        "'abc' for '--seed <N>': expected a whole number, 0 to 18446744073709551615, or -1",
    );
    check("run --temp abc", 2, "'abc' for '--temp <T>': expected a number");
    check("run --logit-bias -5+1", 2, "--logit-bias -5+1: expected ID+BIAS");
    check("eval -m x --tokens 1 --chunks a", 2, "'a' for '--chunks <SIZES>': expected a whole number");
    check("plan --check-tensors", 2, "--check-tensors");
    check("inspect a -m b", 2, "cannot be used with");
    check("run -c 18446744073709551615", 2, "expected 1 to 2147482624");
    check("run -b 0", 2, "--batch 0: expected 1 or more");
    check("run -t 0", 2, "--threads 0: expected 1 to 1024");
    check("run -t 100000", 2, "--threads 100000: expected 1 to 1024");
    check("run --kv-type q4_0", 2, "--kv-type q4_0: expected f16, f32, q8_0");
    check("run --temp -1", 2, "--temp -1: expected a number, 0 or more");
    check("run --top-p 1.5", 2, "--top-p 1.5: expected 0 to 1");
    check("run --min-p -0.1", 2, "--min-p -0.1: expected 0 to 1");
    check("run --repeat-penalty 0", 2, "--repeat-penalty 0: expected 0.01 to 100");
    check("run --logit-bias 1", 2, "--logit-bias 1: expected ID+BIAS");
    check("run --logit-bias 9999999+1", 2, "token 9999999 does not exist");
    check("run --stop=", 2, "a stop string is empty");
    check("run --system x", 2, "--system needs a chat template");
    check("run --override-kv x", 2, "--override-kv");
    check("run --tokenizer x.bin", 2, "--tokenizer is for llama2.c checkpoints");
    check("run --sampler llama2c --top-k 3", 2, "--top-k does nothing with --sampler llama2c");
    check("run --backend ,", 2, "--backend: an entry is empty");
    check("run -m a b -p c", 2, "two prompts");
    check("run --nonsense", 2, "--nonsense");
    check("run --echo --json -p x", 2, "--echo does nothing with --json and --batch-file: leave it out");
    check("run --echo --batch-file x", 2, "--echo does nothing with --json and --batch-file: leave it out");
    check("bench -r 0", 2, "-r 0: expected 1 or more");
    check("bench -p 0 -n 0", 2, "there is nothing to measure");
    check("bench -p 99999999999", 2, "expected at most");
    check("plan --parallel 0", 2, "--sequences 0: expected 1 or more");
    check("bench -s 0", 2, "--sequences 0: expected 1 to 1024");
    check("eval -m x --tokens 1 --chunks 0", 2, "--chunks: a size is 0");
    check("nonsense", 2, "nonsense");
    for line in ["-m x run", "--model=x run -p hi", "-m x", "--ctx-size 5 run"] {
        check(line, 2, "and goes after the command: llmrt run -");
    }
    check("-p 1 bench", 2, "-p is a flag of `bench` and goes after the command: llmrt bench -p");
    check("--nonsense run", 2, "unexpected argument '--nonsense'");
    check("bench -m x y", 2, "cannot be used with");
}

#[test]
fn flags_and_commands_of_other_programs_are_taken_or_answered_with_a_hint() {
    check("run -hf user/repo", 2, "-hf is no flag of llmrt: `llmrt pull hf.co/USER/REPO:QUANT`");
    check("run -ngl 99 -p a", 2, "-ngl is no flag of llmrt: layers are placed by --backend");
    check("run -m x -e", 2, "prompts are taken as they are");
    check("server", 2, "server is no command of llmrt: `llmrt serve` is the server");
    check("download llama3", 2, "`llmrt pull NAME` gets a model");
    let by_ours = ["run", "-c", "64", "-b", "8", "--temp", "0", "-n", "6", "--stop", "zzz", "-p", "Once"];
    let by_theirs = [
        "run",
        "--ctx-size",
        "64",
        "-ub",
        "8",
        "--temperature=0",
        "--predict",
        "6",
        "-r",
        "zzz",
        "-p",
        "Once",
    ];
    let text = |args: &[&str]| succeed(&mut llmrt(args)).stdout;
    assert_eq!(text(&by_theirs), text(&by_ours));
    assert_eq!(text(&["run", "-s", "1", "-s", "2", "-n", "9"]), text(&["run", "-s", "2", "-n", "9"]));
}

#[test]
fn a_value_that_a_plugin_refuses_for_an_option_is_wrong_usage_wherever_it_is_set() {
    let expected = "cpu.isa is `zzz`, expected one of: scalar";
    let refused = |command: &mut std::process::Command, set: &str| {
        let stderr = fail(command, 2);
        assert!(stderr.starts_with(&format!("llmrt: {set}zzz: {expected}")), "{stderr}");
    };
    let command = ["run", "-n", "1", "-p", "x"];
    refused(llmrt(command).env("LLMRT_CPU_ISA", "zzz"), "LLMRT_CPU_ISA=");
    refused(llmrt(command).args(["--plugin-option", "cpu.isa=zzz"]), "plugin option cpu.isa=");
    let pool = fail(llmrt(command).env("LLMRT_CPU_POOL", "zzz"), 2);
    assert!(pool.contains("LLMRT_CPU_POOL=zzz: expected auto, legacy or vmm"), "{pool}");
    let named =
        llmrt(command).arg("--plugin").arg(plugin("cpu")).env("LLMRT_CPU_ISA", "zzz").output().unwrap();
    let stderr = String::from_utf8_lossy(&named.stderr);
    assert!(
        named.status.code() == Some(2) && stderr.contains(&format!("LLMRT_CPU_ISA=zzz: {expected}")),
        "{stderr}"
    );
}

#[test]
fn files_that_cannot_be_used_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let [missing, text, empty, cut] = [
        dir.path().join("missing").to_str().unwrap().to_string(),
        file("text", b"Once upon a time there was no model"),
        file("empty", b""),
        file("cut.gguf", b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\0\0\0\0\0\0\0\0"),
    ];
    for command in
        ["run -m", "bench -m", "bench", "inspect", "plan", "tokenize -p x -m", "eval --tokens 1 -m"]
    {
        check(&format!("{command} {missing}"), 3, "cannot open");
        check(&format!("{command} {text}"), 3, "is no model file");
        check(&format!("{command} {empty}"), 3, "the file is empty");
        check(&format!("{command} {cut}"), 3, "the tensor count claims 9223372036854775807 entries");
        check(&format!("{command} {}", dir.path().display()), 3, "is a directory");
    }
    check(&format!("run -f {missing}"), 3, "cannot open");
    check(
        &format!("run -f {}", file("latin1", b"caf\xe9")),
        3,
        "is no UTF-8 text (byte 3): convert it to UTF-8",
    );
    check("run Once", 3, "a prompt for the embedded model goes after -p");
    check("run user/repo", 3, "a model is a GGUF file or a name of the store: `llmrt list`");
    for words in ["run llama3 hi", "run llama3.2 hi", "run llama3 -p hi"] {
        check(words, 3, "a model is a GGUF file or a name of the store: `llmrt list`");
    }
    check("run --override-kv general.architecture=str:other", 3, "is `other`, which llmrt cannot build");
}

/// A machine that overcommits memory would accept it.
#[test]
fn a_panic_inside_the_template_engine_is_an_error_without_its_message() {
    let template = "{{ [][::-1] }}";
    let flags = ["run", "-p", "hi", "-n", "1", "--chat-template", template];
    let stderr = fail(llmrt(flags).env("RUST_BACKTRACE", "1"), 3);
    assert!(stderr.contains("chat template") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_context_larger_than_memory_is_an_error_of_its_own() {
    match std::fs::read_to_string("/proc/sys/vm/overcommit_memory").as_deref().map(str::trim) {
        Ok("0" | "2") => check("run -c 2147482624 -n 1", 6, "lower the context size (-c)"),
        other => llmrt_tests::skip::skipped(&format!("overcommit_memory is {other:?}")),
    }
}
