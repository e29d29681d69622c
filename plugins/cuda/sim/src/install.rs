//! The folder of libraries: the simulator under the names of the driver's and the compiler's, and cuBLASLt's
//! in a folder of its own, so that it is used only where an option names that folder.

use std::path::{Path, PathBuf};

const SIMULATOR: &str = "libcuda_simulator.so";
const DRIVER: &str = "libcuda.so.1";
const COMPILER: &str = "libnvrtc.so.12";
const CUBLAS: (&str, &str) = ("cublas", "libcublasLt.so.12");

/// Writes the folder. All names are one file, so that a program which opens several has one machine.
pub fn install(dir: &Path) -> Result<(), String> {
    let words = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(dir).map_err(words)?;
    for file in [DRIVER, COMPILER] {
        match std::fs::remove_file(dir.join(file)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(words(e)),
            _ => {}
        }
    }
    std::fs::copy(simulator()?, dir.join(DRIVER)).map_err(words)?;
    std::os::unix::fs::symlink(DRIVER, dir.join(COMPILER)).map_err(words)?;
    let (folder, file) = (dir.join(CUBLAS.0), CUBLAS.1);
    std::fs::create_dir_all(&folder).map_err(words)?;
    match std::fs::remove_file(folder.join(file)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(words(e)),
        _ => {}
    }
    std::os::unix::fs::symlink(Path::new("..").join(DRIVER), folder.join(file)).map_err(words)
}

/// The simulator's library, which cargo puts beside its programs; tests are one folder deeper.
fn simulator() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let found = program.ancestors().skip(1).take(2).map(|dir| dir.join(SIMULATOR)).find(|file| file.exists());
    found.ok_or(format!("no {SIMULATOR} beside {}: run `cargo build -p llmrt-cuda-sim`", program.display()))
}
