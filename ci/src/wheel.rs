//! `cargo ci wheel`: the wheel of the Python package, which has the CPU plugin and the command in it.

use crate::{root, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package on the registry that builds wheels of Rust.
const MATURIN: &str = "maturin>=1.9,<2";

/// Builds the wheel into a folder and prints its path.
pub fn wheel(words: &[&str]) -> Result<(), String> {
    let (mut out, mut profile) = (root().join("target/wheels"), "release");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--out" => out = words.next().ok_or("--out: expected a folder")?.into(),
            "--dev" => profile = "dev",
            word => return Err(format!("wheel: `{word}` is unknown: expected --out DIR or --dev")),
        }
    }
    let mut build = Command::new(maturin()?);
    build.args(["build", "--locked", "--profile", profile, "--manifest-path", "runtime/python/Cargo.toml"]);
    if profile == "release" {
        build.arg("--strip");
    }
    run(build.arg("--out").arg(&out).current_dir(root()))?;
    println!("{}", newest(&out)?.display());
    Ok(())
}

/// The program: the one of the path, or one that pip installs into the target folder.
fn maturin() -> Result<PathBuf, String> {
    let of_path =
        Command::new("maturin").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if of_path.is_ok_and(|status| status.success()) {
        return Ok("maturin".into());
    }
    let folder = root().join("target/maturin");
    let program = folder.join("bin/maturin");
    if !program.is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", MATURIN];
        run(Command::new(folder.join("bin/python")).args(pip))?;
    }
    Ok(program)
}

/// The wheel that was written last.
fn newest(folder: &Path) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let files = std::fs::read_dir(folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheels = files.filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheels
        .max_by_key(|path| path.metadata().and_then(|about| about.modified()).ok())
        .ok_or_else(|| format!("{}: there is no wheel", folder.display()))
}
