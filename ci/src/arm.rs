//! `cargo ci arm`: the CPU plugin and `llmrt run` on 64-bit ARM, emulated by qemu, beside the bits of this machine.
//!
//! Results of single ops, of all cases of their rules, are compared digest by digest (`plugins/cpu/tests/digests.rs`) with
//! those of this machine, which other tests compare with the references; the embedded model's greedy text with its golden
//! file.

use crate::{cargo, matrix::target, root, run};
use std::path::Path;
use std::process::{Command, Output};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// The emulator, linked statically or not.
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];
/// Where the C library of the target is.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Emulated cores by what they multiply bytes with: usdot, sdot, neither.
const CORES: [&str; 3] = ["max", "neoverse-n1", "cortex-a72"];

/// Ops whose formula has a function of the C library, which rounds otherwise on other machines; the test that makes the
/// digests compares their results with the reference.
const FROM_THE_C_LIBRARY: [&str; 2] = ["softplus", "ssm_scan"];

/// Builds, tests and compares; first reports what is missing.
pub fn arm() -> Result<(), String> {
    let emulator = find_tools()?;
    let on = |core: &str, arguments: &[&str]| {
        let mut command = cargo();
        command.arg(arguments[0]).args(["--locked", "--target", TARGET]).args(&arguments[1..]);
        command.envs(environment(core, emulator));
        command
    };
    run(&mut on(CORES[0], &["build", "-p", "llmrt-cli"]))?;
    let expected = digests(cargo().args(["test", "--locked"]))?;
    for core in CORES {
        println!("\ninstruction sets, digests and text on {core}");
        let tests = ["--test", "modules", "--test", "device", "--test", "prepared", "--test", "encode"];
        run(&mut on(core, &[&["test", "-p", "llmrt-cpu"], &tests[..]].concat()))?;
        compare(&expected, &digests(&mut on(core, &["test"]))?)?;
        golden_stories(core, emulator)?;
    }
    Ok(())
}

/// The emulator's name, if the rest is there too.
fn find_tools() -> Result<&'static str, String> {
    let has_target = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    let libdir = has_target.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    let emulator = EMULATORS.into_iter().find(|name| answers(name));
    let missing: Vec<&str> = [
        (
            libdir.is_ok_and(|dir| Path::new(&dir).is_dir()),
            "the standard library: `rustup target add aarch64-unknown-linux-gnu`",
        ),
        (answers(LINKER), "the linker aarch64-linux-gnu-gcc: Debian's package gcc-aarch64-linux-gnu"),
        (
            Path::new(LIBRARIES).is_dir(),
            "the C library in /usr/aarch64-linux-gnu: Debian's package libc6-dev-arm64-cross",
        ),
        (emulator.is_some(), "the emulator qemu-aarch64: Debian's package qemu-user-static"),
    ]
    .into_iter()
    .filter_map(|(is_there, what)| (!is_there).then_some(what))
    .collect();
    match (emulator, missing.is_empty()) {
        (Some(emulator), true) => Ok(emulator),
        _ => Err(format!("nothing of 64-bit ARM was tested; what is missing:\n  {}", missing.join("\n  "))),
    }
}

fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// What makes cargo link for the target and run what it built on an emulated core.
fn environment(core: &str, emulator: &str) -> [(&'static str, String); 4] {
    [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER.into()),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", emulator.into()),
        ("QEMU_LD_PREFIX", LIBRARIES.into()),
        ("QEMU_CPU", core.into()),
    ]
}

/// The lines of the digests' test, which `cargo test …` is completed to.
fn digests(test: &mut Command) -> Result<Vec<String>, String> {
    let out = finish(test.args(["-p", "llmrt-cpu", "--test", "digests", "--", "--nocapture"]))?;
    // The first one follows the name of the test.
    let lines = out.lines().filter_map(|line| Some(line[line.find("digest ")?..].to_string()));
    Ok(lines.collect())
}

/// An error that names the cases whose bits differ.
fn compare(expected: &[String], found: &[String]) -> Result<(), String> {
    if expected.is_empty() || expected.len() != found.len() {
        return Err(format!("{} digests here, {} on 64-bit ARM", expected.len(), found.len()));
    }
    let op = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_string();
    let differing = expected.iter().zip(found).filter(|(expected, found)| expected != found);
    let (known, new): (Vec<_>, Vec<_>) =
        differing.partition(|(line, _)| FROM_THE_C_LIBRARY.contains(&op(line).as_str()));
    println!("{} digests, {} differ where functions of the C library do", expected.len(), known.len());
    if new.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        new.iter().map(|(here, there)| format!("  here {here}\n  ARM  {there}")).collect();
    Err(format!("{} results have other bits on 64-bit ARM:\n{}", new.len(), lines.join("\n")))
}

/// The embedded model's greedy text is the golden one.
fn golden_stories(core: &str, emulator: &str) -> Result<(), String> {
    let file = "cli/assets/stories.golden.txt";
    let golden = std::fs::read_to_string(root().join(file)).map_err(|e| format!("{file}: {e}"))?;
    for line in golden.lines() {
        let case: serde_json::Value = serde_json::from_str(line).map_err(|e| format!("{file}: {e}"))?;
        let (prompt, text) = (case["prompt"].as_str().unwrap_or(""), case["text"].as_str().unwrap_or(""));
        let mut llmrt = Command::new(emulator);
        llmrt.arg(target().join(TARGET).join("debug/llmrt")).envs(environment(core, emulator));
        llmrt.args(["run", "--raw", "--temp", "0", "--kv-type", "f32", "-n", "64", "-p", prompt]);
        let found = finish(&mut llmrt)?;
        if found.trim() != text.trim() {
            return Err(format!("{prompt:?} goes on on {core} with\n{found}\nexpected:\n{text}"));
        }
    }
    println!("the golden text");
    Ok(())
}

/// The standard output of a command that succeeds; its messages otherwise.
fn finish(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&stdout).into_owned();
    match status.success() {
        true => Ok(text),
        false => Err(format!("{command:?}: {status}\n{text}{}", String::from_utf8_lossy(&stderr))),
    }
}
