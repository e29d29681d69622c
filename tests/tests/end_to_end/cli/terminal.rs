//! Control characters of models and their names never reach a terminal; stdout that cannot be written is a failure.

use super::{json, text};
use llmrt_tests::build::{bin_dir, llmrt, succeed};
use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// A name with a title sequence, an 8-bit CSI and a mark that turns the direction of text.
const NAME: &str = "a\x1b]0;b\x07\u{9b}31m\u{202e}c";
/// `<0x1B>` of the embedded model's vocabulary.
const ESCAPE: &str = "30";

fn has_controls(bytes: &[u8]) -> bool {
    text(bytes).chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}'))
}

#[test]
fn names_of_a_file_are_escaped_in_tables_notes_and_json() {
    let name = format!("general.name=str:{NAME}");
    for command in [
        &["inspect"][..],
        &["inspect", "--json"],
        &["bench", "-p", "1", "-n", "0", "-r", "1", "--no-warmup"],
        &["bench", "-p", "1", "-n", "0", "-r", "1", "--no-warmup", "--json"],
    ] {
        let out = succeed(llmrt(command).args(["--override-kv", &name]));
        assert!(!has_controls(&out.stdout) && !has_controls(&out.stderr), "{}", text(&out.stdout));
    }
    let file = json(llmrt(["inspect", "--json"]).args(["--override-kv", &name]));
    assert_eq!(file["metadata"]["general.name"], NAME, "JSON means the same");
    let missing = llmrt(["inspect", "\x1b]0;x\x07"]).output().unwrap();
    assert!(!has_controls(&missing.stderr), "{}", text(&missing.stderr));
}

#[test]
fn names_of_files_are_escaped_in_warnings_of_the_host_and_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("libllmrt_\x1b[31m\nx.so");
    std::fs::write(&file, "no plugin").unwrap();
    let found = succeed(llmrt(["devices"]).env("LLMRT_PLUGIN_PATH", dir.path()));
    let escaped = "libllmrt_\\u{1b}[31m\\nx.so: not loaded: ";
    let named = llmrt(["devices", "--plugin"]).arg(&file).output().unwrap();
    for stderr in [&found.stderr, &named.stderr] {
        assert!(!has_controls(stderr) && text(stderr).contains(escaped), "{}", text(stderr));
    }
    for name in ["no\nsuch.gguf", "no\nsuch"] {
        let out = llmrt(["run", name, "x"]).output().unwrap();
        let stderr = text(&out.stderr);
        assert!(stderr.starts_with("llmrt: no\\nsuch") && stderr.lines().count() == 1, "{stderr}");
    }
}

/// What a command shows on a terminal of `script`; `None`, with a message, where there is none.
fn shown(args: &str) -> Option<Vec<u8>> {
    let version = Command::new("script").arg("--version").output();
    if !version.is_ok_and(|out| text(&out.stdout).contains("util-linux")) {
        println!("skipped: `script` of util-linux gives the terminal, and is not there");
        return None;
    }
    let command = format!("'{}' {args} 2>/dev/null", bin_dir().join("llmrt").display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).stdin(Stdio::null());
    Some(succeed(script.env("LLMRT_PLUGIN_PATH", "").env("SHELL", "/bin/sh")).stdout)
}

#[test]
fn generated_control_characters_reach_a_pipe_but_no_terminal() {
    let flags = format!("run --raw -p Once --temp 0 -n 3 --logit-bias {ESCAPE}+1000");
    let piped = succeed(&mut llmrt(flags.split(' '))).stdout;
    assert_eq!(piped, b"\x1b\x1b\x1b\n", "a pipe gets the text as it is");
    let Some(screen) = shown(&flags) else { return };
    assert!(!screen.contains(&0x1b), "{screen:?}");

    let ids = format!("detokenize {ESCAPE} 5 {ESCAPE}");
    assert!(succeed(&mut llmrt(ids.split(' '))).stdout.contains(&0x1b));
    let Some(screen) = shown(&ids) else { return };
    assert!(!screen.contains(&0x1b), "{screen:?}");
}

#[test]
fn a_full_stdout_is_a_failure_with_a_remedy() {
    for command in [
        &["run", "-n", "3", "-p", "Once"][..],
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["devices"],
        &["plugins", "--json"],
        &["ops", "--markdown"],
        &["inspect"],
        &["plan"],
        &["tokenize", "-p", "Once", "--ids"],
        &["detokenize", "300"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = llmrt(command).stdout(full).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{command:?}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains("free some space"), "{command:?}: {}", text(&out.stderr));
    }
}
