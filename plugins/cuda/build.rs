//! Puts kernels that `cargo ci cuda-kernels` compiled into the plugin, if they are there. Nothing is compiled here.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=LLMRT_CUDA_KERNELS");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let file = std::env::var_os("LLMRT_CUDA_KERNELS").map_or_else(|| beside(&out), PathBuf::from);
    // The folder is watched, and made: a file that is not there would have this run at every build.
    let folder = file.parent().unwrap_or(&out);
    let _ = std::fs::create_dir_all(folder);
    println!("cargo:rerun-if-changed={}", folder.display());
    let bytes = std::fs::read(&file).unwrap_or_default();
    std::fs::write(out.join("kernels.bin"), bytes).expect("cargo's folder can be written");
}

/// `cuda-kernels/kernels.bin` in the target folder: target/PROFILE/build/PACKAGE/out is ours.
fn beside(out: &Path) -> PathBuf {
    out.ancestors().nth(4).unwrap_or(out).join("cuda-kernels/kernels.bin")
}
