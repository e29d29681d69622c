//! `cargo ci peer DIR`: builds llama.cpp for this machine from the sources in the Python package llama-cpp-python, or from
//! another tree with its build files.

use crate::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package, whose source archive holds llama.cpp's tree.
const PACKAGE: &str = "llama-cpp-python";
/// Its version, named in what is published with numbers of the peer.
const VERSION: &str = "0.3.36";

/// The programs that `cargo ci bench` and the comparison of `llmrt perplexity` use.
const PROGRAMS: [&str; 5] =
    ["llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize", "llama-server"];

/// Of another tree, such as ik_llama.cpp's, these alone.
const OF_A_TREE: [&str; 2] = ["llama-bench", "llama-batched-bench"];

/// AVX2, FMA and F16C.
const AVX2: [&str; 7] = [
    "-DGGML_NATIVE=OFF",
    "-DGGML_SSE42=ON",
    "-DGGML_AVX=ON",
    "-DGGML_AVX2=ON",
    "-DGGML_FMA=ON",
    "-DGGML_F16C=ON",
    "-DGGML_BMI2=ON",
];

/// AVX-512 with VNNI.
const VNNI: [&str; 4] =
    ["-DGGML_AVX512=ON", "-DGGML_AVX512_VBMI=ON", "-DGGML_AVX512_VNNI=ON", "-DGGML_AVX512_BF16=ON"];

/// What an instruction set is built with: all that this machine has, AVX-512 with VNNI but without AMX, AVX-512 without VNNI,
/// or AVX2 alone.
fn options(isa: &str) -> Result<Vec<&'static str>, String> {
    match isa {
        "native" => Ok(vec!["-DGGML_NATIVE=ON", "-DGGML_AVX512=OFF"]),
        "avx512vnni" => Ok([&AVX2[..], &VNNI[..]].concat()),
        "avx512" => Ok([&AVX2[..], &["-DGGML_AVX512=ON"]].concat()),
        "avx2" => Ok([&AVX2[..], &["-DGGML_AVX512=OFF"]].concat()),
        _ => Err(format!("--isa {isa}: expected native, avx512vnni, avx512 or avx2")),
    }
}

/// Builds in `DIR/build`, and copies the programs to `DIR/ISA`: from the package, which is downloaded and unpacked, or from the
/// tree `source`, whose name is one more folder after `DIR`. Needs cmake and ninja, for the package pip and tar.
pub fn build(dir: &str, isa: &str, source: Option<&str>) -> Result<(), String> {
    let isa_options = options(isa)?;
    let tree = source.and_then(|tree| Path::new(tree).file_name());
    let dir = &tree.map_or(dir.into(), |name| Path::new(dir).join(name));
    let (build, to) = (dir.join("build"), dir.join(isa));
    std::fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
    let (source, programs) = match source {
        Some(tree) => (tree.into(), &OF_A_TREE[..]),
        None => (unpacked(dir)?, &PROGRAMS[..]),
    };
    let options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_SERVER=ON",
        "-DLLAMA_BUILD_UI=OFF",
    ];
    // Without the options of the instruction set that was built before.
    run(Command::new("cmake")
        .args(["--fresh", "-G", "Ninja", "-S"])
        .arg(source)
        .arg("-B")
        .arg(&build)
        .args(isa_options)
        .args(options))?;
    run(Command::new("ninja").arg("-C").arg(&build).args(programs))?;
    for program in programs {
        let (from, to) = (build.join("bin").join(program), to.join(program));
        std::fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    println!("{}", to.join("llama-bench").display());
    Ok(())
}

/// llama.cpp's tree in the package, which is downloaded if it is not there yet.
pub fn unpacked(dir: &Path) -> Result<PathBuf, String> {
    let name = format!("{}-{VERSION}", PACKAGE.replace('-', "_"));
    let archive = dir.join(format!("{name}.tar.gz"));
    if !archive.exists() {
        let package = format!("{PACKAGE}=={VERSION}");
        let args = ["-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE, &package, "-d"];
        run(Command::new("python3").args(args).arg(dir))?;
    }
    run(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(dir))?;
    Ok(dir.join(&name).join("vendor/llama.cpp"))
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn every_level_names_its_instruction_sets() {
        assert_eq!(options("native").unwrap()[0], "-DGGML_NATIVE=ON");
        let avx512 = |isa| options(isa).unwrap().contains(&"-DGGML_AVX512=ON");
        assert_eq!(["native", "avx512", "avx2"].map(avx512), [false, true, false]);
        assert!(options("sse").unwrap_err().contains("expected native"));
    }
}
