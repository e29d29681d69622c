//! `run`: where the prompt comes from, when the text ends, and what is on stderr.

use super::{stdout, text};
use llmrt_tests::build::{fail, llmrt, plugin, succeed};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// The likeliest text of 12 tokens after a prompt.
const GREEDY: [&str; 6] = ["run", "--temp", "0", "-n", "12", "--raw"];
const PROMPT: &str = "Once upon a time";

fn greedy(more: &[&str]) -> Command {
    llmrt(GREEDY.iter().chain(more))
}

fn greedy_text(more: &[&str]) -> String {
    stdout(GREEDY.iter().chain(more))
}

#[test]
fn without_any_argument_the_embedded_model_generates_a_story() {
    let out = succeed(&mut llmrt(["run", "-n", "40"]));
    let story = text(&out.stdout);
    assert!(story.split_whitespace().count() > 10, "{story}");
    let last = text(&out.stderr).lines().last().unwrap().to_string();
    let words = ["load ", " s, prompt 1 token", "generated ", " tok/s"];
    assert!(words.iter().all(|w| last.contains(w)), "{last}");
}

#[test]
fn a_seed_gives_the_same_text_and_another_seed_another() {
    let story = |seed: &str| stdout(["run", "-n", "40", "--seed", seed]);
    assert_eq!(story("7"), story("7"));
    assert_ne!(story("7"), story("8"));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    assert_eq!(greedy_text(&["-t", "1", "-p", PROMPT]), greedy_text(&["-t", "3", "-p", PROMPT]));
}

#[test]
fn the_prompt_may_be_a_word_a_flag_a_file_or_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt.txt");
    std::fs::write(&file, format!("{PROMPT}\n")).unwrap();
    let by_flag = greedy_text(&["-p", PROMPT]);
    assert_eq!(greedy_text(&["-f", file.to_str().unwrap()]), by_flag);

    for flags in [&[][..], &["-f", "-"]] {
        let mut command = greedy(flags);
        let mut piped =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(PROMPT.as_bytes()).unwrap();
        assert_eq!(text(&piped.wait_with_output().unwrap().stdout), by_flag);
    }

    let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
    assert_eq!(greedy_text(&[embedded, PROMPT]), by_flag);
    assert_eq!(greedy_text(&["-m", embedded, "Once upon", "a time"]), by_flag);
    assert_eq!(greedy_text(&["-m", embedded, "Once", "upon", "a", "time"]), by_flag);
    assert_eq!(greedy_text(&[embedded, "Once", "upon", "a", "time"]), by_flag);
}

#[test]
fn every_way_of_loading_gives_the_same_text() {
    let by_default = greedy_text(&["-p", PROMPT]);
    for flags in [&["--no-mmap"][..], &["--load-mode", "none"], &["--mlock"], &["--check-tensors"]] {
        assert_eq!(greedy_text(&[&["-p", PROMPT], flags].concat()), by_default, "{flags:?}");
    }
}

#[test]
fn n_counts_generated_tokens() {
    let out = succeed(&mut llmrt(["run", "-n", "5", "--logit-bias", "2-inf", "-p", PROMPT]));
    assert!(text(&out.stderr).contains("generated 5 tokens at "), "{}", text(&out.stderr));
}

#[test]
fn n_of_0_computes_the_prompt_alone_and_below_0_is_no_limit() {
    let out = succeed(&mut llmrt(["run", "-n", "0", "-p", PROMPT]));
    assert_eq!(text(&out.stdout), "\n");
    assert!(text(&out.stderr).contains("generated 0 tokens"), "{}", text(&out.stderr));
    let flags = ["run", "-c", "32", "--logit-bias", "2-inf", "-p", PROMPT, "-n", "-1"];
    assert!(text(&succeed(&mut llmrt(flags)).stderr).contains("the context of 32 tokens is full"));
}

#[test]
fn an_override_of_a_key_that_the_file_lacks_is_set_with_a_warning() {
    let stderr = |key: &str| {
        let given = format!("{key}=int:384");
        text(&succeed(&mut llmrt(["run", "-n", "1", "-p", PROMPT, "--override-kv", &given])).stderr)
    };
    let misspelt = stderr("llama.context_lenght");
    assert!(
        misspelt.contains("warning: --override-kv llama.context_lenght: the file has no such key"),
        "{misspelt}"
    );
    assert!(!stderr("llama.context_length").contains("warning"));
}

#[test]
fn a_template_that_renders_nothing_is_named() {
    let template = "tokenizer.chat_template=str:{{ '' }}";
    let stderr = fail(&mut llmrt(["run", "--override-kv", template, "-p", PROMPT]), 3);
    assert!(stderr.contains("the chat template (tokenizer.chat_template) renders no text"), "{stderr}");
}

#[test]
fn a_seed_of_the_clock_is_noted_and_gives_the_same_text_again() {
    for flags in [&[][..], &["-s", "-1"]] {
        let out = succeed(llmrt(["run", "-n", "40"]).args(flags));
        let stderr = text(&out.stderr);
        let seed = stderr.lines().find_map(|line| line.strip_prefix("seed ")).expect("the seed is noted");
        assert_eq!(stdout(["run", "-n", "40", "-s", seed]), text(&out.stdout));
    }
    let known = text(&succeed(&mut llmrt(["run", "-n", "4", "-s", "7"])).stderr);
    assert!(!known.contains("seed"), "{known}");
}

#[test]
fn limits_of_0_or_less_are_no_limits() {
    assert_eq!(greedy_text(&["-p", PROMPT, "--top-k", "-1"]), greedy_text(&["-p", PROMPT, "--top-k", "0"]));
    let trained = super::json(&mut llmrt(["inspect", "--json"]))["metadata"]["llama.context_length"].as_u64();
    let planned = super::json(&mut llmrt(["plan", "--json", "-c", "0"]))["n_ctx"].as_u64();
    assert!(trained.is_some() && trained == planned, "{trained:?} {planned:?}");
}

#[test]
fn a_hang_up_that_the_parent_ignores_stays_ignored() {
    let mut command = Command::new("env");
    command
        .args(["--ignore-signal=HUP", "--default-signal=TERM"])
        .arg(llmrt([""; 0]).get_program())
        .arg("run");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for signal in ["-HUP", "-TERM"] {
        std::thread::sleep(std::time::Duration::from_millis(500)); // until it reads
        succeed(Command::new("kill").args([signal, &child.id().to_string()]));
    }
    assert_eq!(child.wait().unwrap().code(), Some(143), "not 129");
}

#[test]
fn ctrl_c_ends_a_program_that_waits_for_its_prompt() {
    let mut child =
        llmrt(["run"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500)); // until it reads
    succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
    assert_eq!(child.wait().unwrap().code(), Some(130)); // its stdin is still open
}

#[test]
fn echo_puts_the_prompt_in_front() {
    assert_eq!(greedy_text(&["-p", PROMPT, "--echo"]), PROMPT.to_string() + &greedy_text(&["-p", PROMPT]));
}

#[test]
fn a_stop_text_ends_the_text_before_it() {
    let whole = greedy_text(&["-p", PROMPT]);
    let stop = whole.split_whitespace().nth(2).expect("12 tokens are some words");
    let cut = greedy_text(&["-p", PROMPT, "--stop", stop]);
    assert_eq!(cut.trim_end_matches('\n'), &whole[..whole.find(stop).unwrap()]);
}

#[test]
fn a_bias_of_minus_infinity_forbids_a_token() {
    let ids = stdout(["tokenize", "--ids", "-p", PROMPT]);
    let likeliest = stdout([
        "eval",
        "-m",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf"),
        "--tokens",
        &ids,
    ]);
    let id = likeliest.split(['\t', ':']).nth(1).unwrap();
    let forbidden = greedy_text(&["-p", PROMPT, "--logit-bias", &format!("{id}-inf")]);
    assert_ne!(forbidden, greedy_text(&["-p", PROMPT]));
}

#[test]
fn a_full_context_ends_the_text_with_a_note() {
    let out = succeed(&mut llmrt(["run", "-c", "16", "--logit-bias", "2-inf", "-p", PROMPT]));
    assert!(text(&out.stderr).contains("the context of 16 tokens is full"), "{}", text(&out.stderr));
}

#[test]
fn a_chat_template_wraps_the_prompt_unless_raw() {
    let template =
        "tokenizer.chat_template=str:{% for m in messages %}{{ m.role[0] }}:{{ m.content }} {% endfor %}a:";
    let wrapped =
        ["run", "--temp", "0", "-n", "12", "--override-kv", template, "--system", "S", "-p", "hello"];
    let by_hand = greedy_text(&["-p", "s:S u:hello a:"]);
    assert_eq!(stdout(wrapped).trim(), by_hand.trim());
    assert_eq!(greedy_text(&["--override-kv", template, "-p", PROMPT]), greedy_text(&["-p", PROMPT]));
}

#[test]
fn verbose_shows_where_it_ran_and_the_seed() {
    let stderr = text(&succeed(&mut llmrt(["run", "-v", "-n", "2", "--seed", "11"])).stderr);
    for expected in ["seed 11", "1 split, ", "copied per step: 0 bytes"] {
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn verbose_shows_the_scratch_memory_of_a_device_and_a_flag_chooses_its_kind() {
    let so = plugin("sim");
    let line = |flags: &[&str]| {
        let mut command = llmrt(["run", "-v", "-n", "2", "--backend", "sim:sim", "--plugin"]);
        let stderr = text(&succeed(command.arg(&so).args(flags)).stderr);
        let found = stderr.lines().find(|line| line.starts_with("scratch memory of sim:sim: "));
        found.unwrap_or_else(|| panic!("{stderr}")).to_string()
    };
    assert!(line(&[]).contains("sim:sim: vmm, ") && line(&[]).contains(" reserved, 0 B in use"));
    assert!(line(&["--pool", "legacy"]).contains("sim:sim: legacy, "));
    let of_cpu = text(&succeed(&mut llmrt(["run", "-v", "-n", "2"])).stderr);
    assert!(!of_cpu.contains("scratch memory"), "{of_cpu}");
    let wrong = fail(&mut llmrt(["run", "--pool", "heap"]), 2);
    assert!(wrong.contains("expected auto, legacy or vmm"), "{wrong}");
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let mut child = llmrt(["run", "-c", "2000", "--logit-bias", "2-inf"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and closes it
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(!stderr.contains("panic") && !stderr.contains("llmrt:"), "{stderr}");
}

#[test]
fn ctrl_c_stops_the_text_and_still_notes_the_speed() {
    let mut child = llmrt(["run", "-c", "100000", "--logit-bias", "2-inf"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 4]).unwrap();
    succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130));
    assert!(text(&out.stderr).contains("generated "), "{}", text(&out.stderr));
}

#[test]
fn an_empty_prompt_begins_from_nothing_with_a_note() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("empty.txt");
    std::fs::write(&file, "").unwrap();
    for flags in [&[][..], &["--json"], &["-f", file.to_str().unwrap()]] {
        let out = succeed(llmrt(["run", "-n", "3"]).args(flags));
        assert!(text(&out.stderr).contains("the prompt is empty: "), "{flags:?}: {}", text(&out.stderr));
    }
    assert!(!text(&succeed(&mut llmrt(["run", "-n", "3", "-p", "a"])).stderr).contains("empty"));
}

#[test]
fn a_system_message_without_a_role_in_the_template_goes_in_front_of_the_prompt() {
    let run = |flags: &[&str]| {
        let output = succeed(llmrt(["run", "--temp", "0", "-n", "6", "--chat-template"]).args(flags));
        (text(&output.stdout).to_string(), text(&output.stderr).contains("has no system role"))
    };
    let bare = "{{ messages[-1].content }}";
    let (merged, is_noted) = run(&[bare, "-p", "Once", "--system", "A tale."]);
    assert!(is_noted);
    assert_eq!(merged, run(&[bare, "-p", "A tale.\nOnce"]).0);
    assert!(!run(&["zephyr", "-p", "Once", "--system", "A tale."]).1);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused() {
    let stderr = fail(&mut llmrt(["run", "-c", "4", "-p", "Once upon a time there was a fox"]), 2);
    assert!(stderr.contains("the context holds 4: raise it with -c"), "{stderr}");
}

#[test]
fn a_chat_template_may_be_named_given_or_read_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("upon.jinja");
    std::fs::write(&file, "Once upon a {{ messages[0].content }}").unwrap();
    let text = |flag: &str, value: &str| stdout(["run", "--temp", "0", "-n", "6", flag, value, "-p", "time"]);
    let expected = stdout(["run", "--temp", "0", "-n", "6", "-p", PROMPT]);
    assert_eq!(text("--chat-template-file", file.to_str().unwrap()).trim(), expected.trim());
    assert_eq!(text("--chat-template", "Once upon a {{ messages[0].content }}").trim(), expected.trim());
    assert_ne!(text("--chat-template", "chatml"), expected);

    std::fs::write(&file, "line one\n{% if %}").unwrap();
    let file = file.to_str().unwrap();
    let error = fail(&mut llmrt(["run", "--chat-template-file", file, "-p", "x"]), 3);
    assert!(error.contains(&format!("{file}: chat template, line 2: ")), "{error}");
    let error = fail(&mut llmrt(["run", "--chat-template", "chatmll", "-p", "x"]), 2);
    assert!(
        error.contains("--chat-template chatmll: expected a Jinja template, or one of chatml, "),
        "{error}"
    );
    fail(&mut llmrt(["run", "--raw", "--chat-template", "chatml", "-p", "x"]), 2);
}

#[test]
fn a_prompt_cache_changes_the_time_and_not_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt.kv");
    let file = file.to_str().unwrap();
    let long = "Once upon a time, there was a curious girl named Lily. She lived in a cozy house.";
    let longer = format!("{long} One day, she had a honey cake.");
    let run = |prompt: &str, more: &[&str]| {
        let out = succeed(&mut llmrt(GREEDY.iter().chain(&["-p", prompt]).chain(more)));
        (text(&out.stdout), text(&out.stderr))
    };
    let cached = |prompt: &str| run(prompt, &["--prompt-cache", file]);
    let n_prompt =
        |stderr: &str| stderr.split("prompt ").last().unwrap().split(' ').next().unwrap().to_string();

    let (expected, _) = run(long, &[]);
    let (first, stderr) = cached(long);
    assert!(first == expected && !stderr.contains("restored"), "{stderr}");
    let (second, stderr) = cached(long);
    assert_eq!((second, n_prompt(&stderr)), (expected, "1".to_string()), "{stderr}");
    assert!(stderr.contains("(prompt cache: "), "{stderr}");

    let (expected, stderr) = run(&longer, &[]);
    let n_all: usize = n_prompt(&stderr).parse().unwrap();
    let (third, stderr) = cached(&longer);
    assert_eq!(third, expected);
    assert!(n_prompt(&stderr).parse::<usize>().unwrap() < n_all / 2, "{stderr}");
    let (other, stderr) = cached(PROMPT);
    assert_eq!(other, run(PROMPT, &[]).0, "{stderr}");
}

#[test]
fn a_prompt_cache_that_does_not_fit_the_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt.kv");
    let path = file.to_str().unwrap();
    greedy_text(&["-p", PROMPT, "--prompt-cache", path]);
    let whole = std::fs::read(&file).unwrap();
    let refused =
        |more: &[&str]| fail(&mut greedy(&[&["-p", PROMPT, "--prompt-cache", path], more].concat()), 3);

    let error = refused(&["--kv-type", "f32"]);
    assert!(error.contains("its type of the K cache is `F16` and that of this run `F32`"), "{error}");
    assert!(refused(&["-c", "100"]).contains("its context size is `384` and that of this run `100`"));
    let other_eps = "llama.attention.layer_norm_rms_epsilon=float:0.1";
    assert!(refused(&["--override-kv", other_eps]).contains("its model checksum is "));
    assert_eq!(std::fs::read(&file).unwrap(), whole, "a file that is refused stays");

    for (bytes, expected) in [
        (&whole[..whole.len() / 2], "it is corrupt"),
        (&[&whole[..100], &[0xff; 64], &whole[164..]].concat(), "it is corrupt"),
        (&b"GGUF"[..], "it is not a prompt cache of this version"),
        (&[], "it is not a prompt cache of this version"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let error = refused(&[]);
        assert!(
            error.contains(expected) && error.contains("delete the file or give another name"),
            "{error}"
        );
    }
}

#[test]
fn a_prompt_cache_that_cannot_be_written_is_refused_before_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no-folder/prompt.kv");
    let out = greedy(&["-p", PROMPT, "--prompt-cache", path.to_str().unwrap()]).output().unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("folders are not made"), "{out:?}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left");
}
