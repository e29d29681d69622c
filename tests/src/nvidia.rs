//! The plugin for NVIDIA cards, and a simulated driver.

use crate::build::bin_dir;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The plugin's file and a folder with the simulated driver, built once per test process.
pub fn built() -> (&'static Path, &'static Path) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let (plugin, libraries) = BUILT.get_or_init(|| {
        let dir = bin_dir();
        let libraries = dir.join("simulated-cuda");
        run(Command::new(dir.join("llmrt-cuda-sim")).arg(&libraries));
        (dir.join("libllmrt_cuda.so"), libraries)
    });
    (plugin, libraries)
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}
