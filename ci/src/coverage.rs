//! `cargo ci coverage`: line coverage of the parsers and the scheduler, by their crates' own tests.

use crate::{cargo, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates whose tests are run, and the source folders that are shown.
const PACKAGES: &[&str] = &["llmrt-gguf", "llmrt-sparse", "llmrt-tokenizer", "llmrt-engine", "llmrt-host"];
const SHOWN: &[&str] = &[
    "runtime/gguf/src",
    "runtime/sparse/src",
    "runtime/tokenizer/src",
    "runtime/engine/src",
    "runtime/host/src/sched",
    "runtime/host/src/plugin",
];

/// Builds the tests with instrumentation, runs them, prints a table per folder.
pub fn coverage() -> Result<(), String> {
    let tools = Tools::find()?;
    let dir = root().join("target/coverage");
    let profiles = dir.join("profiles");
    let _ = std::fs::remove_dir_all(&profiles);
    std::fs::create_dir_all(&profiles).map_err(|e| format!("{}: {e}", profiles.display()))?;

    let mut test = cargo();
    test.arg("test").arg("--locked").args(PACKAGES.iter().flat_map(|p| ["-p", p]));
    test.args(["--lib", "--tests", "--message-format=json-render-diagnostics"]);
    // Built for an example in the documentation, which is not run here.
    test.args(["--config", "profile.dev.package.llmrt-cpu.opt-level=0"]);
    // A model on kernels without optimisation takes minutes, and so do texts that fill 256 MiB; they cover nothing else.
    test.args(["--", "--skip", "core::tests::cpu", "--skip", "a_text_that_doubles"]);
    test.env("RUSTFLAGS", "-Cinstrument-coverage").env("CARGO_TARGET_DIR", &dir);
    test.env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
    let out = test.stderr(std::process::Stdio::inherit()).output().map_err(|e| format!("cargo test: {e}"))?;
    let stdout = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        return Err(format!("tests failed under coverage:\n{stdout}"));
    }
    let binaries: Vec<&str> = stdout.lines().filter_map(executable).collect();

    let merged = dir.join("merged.profdata");
    let raw = list(&profiles)?;
    run(Command::new(&tools.profdata).args(["merge", "-sparse", "-o"]).arg(&merged).args(raw))?;
    let mut report = Command::new(&tools.cov);
    report.args(["report", "--instr-profile"]).arg(&merged);
    report.args(["--show-region-summary=false", "--show-branch-summary=false"]);
    report.args(binaries.iter().enumerate().flat_map(|(i, b)| {
        if i == 0 { vec![(*b).to_string()] } else { vec!["--object".into(), (*b).to_string()] }
    }));
    report.args(SHOWN.iter().map(|s| root().join(s)));
    run(&mut report)
}

/// The path in a line of cargo's JSON about a test executable.
fn executable(line: &str) -> Option<&str> {
    let rest = line.split_once("\"executable\":\"")?.1;
    rest.split_once('"').map(|(path, _)| path)
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(entries.flatten().map(|e| e.path()).collect())
}

/// LLVM's tools, of a version that reads this compiler's profiles.
struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

impl Tools {
    /// rustup's own, or the distribution's from version 19 on.
    fn find() -> Result<Tools, String> {
        let sysroot =
            Command::new("rustc").args(["--print", "target-libdir"]).output().map_err(|e| e.to_string())?;
        let libdir = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
        let rustup = libdir.with_file_name("bin");
        let mut places = vec![(rustup.join("llvm-profdata"), rustup.join("llvm-cov"))];
        for version in (19..30).rev() {
            let bin = PathBuf::from("/usr/bin");
            places.push((
                bin.join(format!("llvm-profdata-{version}")),
                bin.join(format!("llvm-cov-{version}")),
            ));
        }
        places
            .into_iter()
            .find(|(p, c)| p.exists() && c.exists())
            .map(|(profdata, cov)| Tools { profdata, cov })
            .ok_or("no llvm-cov that reads this compiler's profiles: `rustup component add llvm-tools`, or Debian's package llvm-19".into())
    }
}
