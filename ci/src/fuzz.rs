//! `cargo ci fuzz TARGET SECONDS`: builds the fuzz targets with coverage of branches and lets libFuzzer run one.

use crate::{cargo, root, run};
use std::path::PathBuf;
use std::process::Command;

/// What libFuzzer needs of the compiler: counters on every edge, operands of comparisons, checks left in.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on";

/// The longest input tried, in bytes.
const MAX_LEN: u32 = 16 << 10;
/// An input that takes more memory than this, in MiB, or longer than this, in seconds, is a finding.
const MEMORY: u32 = 1024;
const PATIENCE: u32 = 20;

/// Starts from the target's seeds and what earlier runs found; a finding is left in `target/fuzz/TARGET/findings`.
pub fn fuzz(target: &str, seconds: &str) -> Result<(), String> {
    let seconds: u32 = seconds.parse().map_err(|_| format!("`{seconds}` is no number of seconds"))?;
    let home = root().join("target/fuzz").join(target);
    let folder = |name: &str| {
        let dir = home.join(name);
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display())).map(|()| dir)
    };
    let (corpus, seeds, findings) = (folder("corpus")?, folder("seeds")?, folder("findings")?);
    run(cargo()
        .args(["run", "--quiet", "--locked", "-p", "llmrt-fuzz", "--bin", "fuzz-seeds", target])
        .arg(&seeds))?;

    let mut fuzzer = Command::new(build(target)?);
    fuzzer.args([corpus, seeds]).arg(format!("-artifact_prefix={}/", findings.display()));
    fuzzer.args([
        format!("-max_total_time={seconds}"),
        format!("-max_len={MAX_LEN}"),
        "-use_value_profile=1".into(),
    ]);
    fuzzer.args([
        format!("-rss_limit_mb={MEMORY}"),
        format!("-timeout={PATIENCE}"),
        "-print_final_stats=1".into(),
    ]);
    let again = format!("cargo run -p llmrt-fuzz --bin fuzz-{} -- FILE", target.replace('_', "-"));
    run(&mut fuzzer).map_err(|e| format!("{e}\nto look at a file of {}: {again}", findings.display()))
}

/// The fuzzer's program. A `--target` keeps the flags from build scripts, which no fuzzer is linked to.
fn build(target: &str) -> Result<PathBuf, String> {
    let bin = format!("fuzz-{}", target.replace('_', "-"));
    let machine = machine()?;
    let dir = root().join("target/fuzz/build");
    let mut command = cargo();
    command.args(["build", "--locked", "--release", "-p", "llmrt-fuzz", "--bin", &bin, "--target", &machine]);
    run(command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &dir))?;
    Ok(dir.join(machine).join("release").join(bin))
}

/// This machine as rustc calls it.
fn machine() -> Result<String, String> {
    let out = Command::new("rustc").arg("-vV").output().map_err(|e| format!("rustc -vV: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| "rustc -vV names no host".into())
}
