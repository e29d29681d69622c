//! The plugin for Ascend cards, and libraries that simulate the vendor's.

use crate::build::bin_dir;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The plugin's file and a folder of simulated libraries, built once per test process.
pub fn built() -> (&'static Path, &'static Path) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let (plugin, libraries) = BUILT.get_or_init(|| {
        let dir = bin_dir();
        let libraries = dir.join("simulated-cann");
        run(Command::new(dir.join("llmrt-cann-sim")).arg(&libraries));
        (dir.join("libllmrt_cann.so"), libraries)
    });
    (plugin, libraries)
}

/// The libraries of a release, made once per test process.
pub fn libraries(release: &str) -> PathBuf {
    static MADE: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let (plugin, newest) = built();
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let folder = newest.with_file_name(format!("simulated-cann-{release}"));
        let simulator = plugin.with_file_name("llmrt-cann-sim");
        run(Command::new(simulator).arg(&folder).args(["--release", release]));
        folder
    };
    made.entry(release.to_string()).or_insert_with(make).clone()
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}
