//! `cargo ci golden`: builds the plugins that every later host must load, from today's header, into `tests/golden`.
//!
//! The files are committed once per release of the ABI and not built again: what they show is that an old file works.

use crate::{c_plugin, cargo, root, run};
use llmrt_abi::{ABI_MAJOR, ABI_MINOR, layout::FINGERPRINT};
use std::path::Path;

/// Builds a plugin in C and one in Rust for this machine, small, without paths of it.
pub fn build() -> Result<(), String> {
    let dir = root().join(format!("tests/golden/abi-{ABI_MAJOR}.{ABI_MINOR}"));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    c_plugin(&dir, &["-Os", "-s"])?;
    rust_plugin(&dir)?;
    types(&dir)?;
    let facts = format!("machine = {}\nfingerprint = {FINGERPRINT:#018x}\n", std::env::consts::ARCH);
    std::fs::write(dir.join("facts.txt"), facts).map_err(|e| format!("{}: {e}", dir.display()))
}

/// The types as they are now, which `cargo ci layout` compares with later ones.
fn types(dir: &Path) -> Result<(), String> {
    let (from, to) = (root().join("abi/src/types"), dir.join("types"));
    let copy = || -> std::io::Result<()> {
        std::fs::create_dir_all(&to)?;
        for file in std::fs::read_dir(&from)?.flatten() {
            std::fs::copy(file.path(), to.join(file.file_name()))?;
        }
        Ok(())
    };
    copy().map_err(|e| format!("{}: {e}", to.display()))
}

/// `plugins/null`, optimised for size.
fn rust_plugin(dir: &Path) -> Result<(), String> {
    let target = root().join("target/golden");
    let mut command = cargo();
    command.args(["build", "--locked", "--release", "-p", "llmrt-null"]).env("CARGO_TARGET_DIR", &target);
    command.env("RUSTFLAGS", format!("--remap-path-prefix={}=llmrt", root().display()));
    for (key, value) in [("OPT_LEVEL", "z"), ("LTO", "true"), ("STRIP", "true"), ("CODEGEN_UNITS", "1")] {
        command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
    }
    run(&mut command)?;
    let (from, to) = (target.join("release/libllmrt_null.so"), dir.join("libllmrt_null.so"));
    std::fs::copy(&from, &to).map(|_| ()).map_err(|e| format!("{}: {e}", from.display()))
}
