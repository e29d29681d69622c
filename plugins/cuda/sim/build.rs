//! Compiles the kernels as plain C++ into the simulator. Without a C++ compiler: a warning, and no kernels.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let cuda = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("plugins/cuda").to_path_buf();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-env-changed=CXX");
    println!("cargo:rustc-check-cfg=cfg(no_kernels)");
    let mut sources = Vec::new();
    for folder in ["kernels", "emu"] {
        println!("cargo:rerun-if-changed={}", cuda.join(folder).display());
        let files = std::fs::read_dir(cuda.join(folder)).expect("it is there").flatten().map(|f| f.path());
        sources.extend(files.filter(|file| file.extension().is_some_and(|e| e == "cu" || e == "cpp")));
    }
    sources.sort();
    match build(&cuda, &out, &sources) {
        Ok(()) => {
            println!("cargo:rustc-link-search=native={}", out.display());
            println!("cargo:rustc-link-lib=static:+whole-archive=llmrt_cuda_emulated");
        }
        Err(Problem::NoCompiler) => {
            println!("cargo:warning=no C++ compiler: the simulated driver has no kernels");
            println!("cargo:rustc-cfg=no_kernels");
        }
        Err(Problem::Refused(text)) => panic!("{text}"),
    }
}

enum Problem {
    NoCompiler,
    Refused(String),
}

fn build(cuda: &Path, out: &Path, sources: &[PathBuf]) -> Result<(), Problem> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        return Err(Problem::NoCompiler);
    }
    let mut objects = Vec::new();
    for (source, chip) in sources.iter().flat_map(|source| chips(source).map(move |chip| (source, chip))) {
        let stem = source.file_stem().expect("a file").to_string_lossy();
        let object = out.join(format!("{stem}{}.o", chip.unwrap_or_default()));
        let mut c = Command::new(&compiler);
        c.args(["-x", "c++", "-std=c++17", "-O2", "-g1", "-fPIC", "-fno-exceptions", "-fno-rtti"]);
        // Products and sums stay apart, as written; unused helpers of headers are usual.
        c.args(["-ffp-contract=off", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-psabi", "-Werror"]);
        c.arg("-I").arg(cuda.join("emu")).arg("-I").arg(cuda.join("kernels"));
        c.args(chip.map(|chip| format!("-DCHIP={chip}")));
        let (text, made_of) = (text_of(cuda, source, &mut Vec::new()), object.with_extension("made_of"));
        c.arg("-c").arg(source).arg("-o").arg(&object);
        let all = format!("{c:?}\n{text}");
        if !(object.exists() && std::fs::read_to_string(&made_of).is_ok_and(|before| before == all)) {
            let _ = std::fs::remove_file(&made_of);
            run(&mut c)?;
            let _ = std::fs::write(&made_of, all);
        }
        objects.push(object);
    }
    let archive = out.join("libllmrt_cuda_emulated.a");
    let _ = std::fs::remove_file(&archive);
    run(Command::new("ar").arg("crs").arg(archive).args(objects))
}

/// A source with all that it includes of ours: what an object is made of, which is compiled again when that changes.
fn text_of(cuda: &Path, source: &Path, seen: &mut Vec<PathBuf>) -> String {
    let mut text = std::fs::read_to_string(source).unwrap_or_default();
    let quoted = |line: &str| Some(line.strip_prefix("#include \"")?.strip_suffix('"')?.to_string());
    for name in text.lines().filter_map(quoted).collect::<Vec<_>>() {
        let found =
            ["emu", "kernels"].map(|folder| cuda.join(folder).join(&name)).into_iter().find(|f| f.exists());
        if let Some(header) = found.filter(|header| !seen.contains(header)) {
            seen.push(header.clone());
            text += &text_of(cuda, &header, seen);
        }
    }
    text
}

/// What differs between chips is compiled for the oldest, and for all after it; what one chip alone has, for that.
fn chips(source: &Path) -> impl Iterator<Item = Option<u32>> + use<> {
    let text = std::fs::read_to_string(source).unwrap_or_default();
    let includes = |header: &str| text.contains(&format!("#include \"{header}\""));
    let chips: &[Option<u32>] = match () {
        () if includes("hopper.cuh") => &[Some(90)],
        () if includes("tensor.cuh") => &[Some(75), Some(80)],
        () => &[None],
    };
    chips.iter().copied()
}

fn run(command: &mut Command) -> Result<(), Problem> {
    let out = command.output().map_err(|_| Problem::NoCompiler)?;
    match out.status.success() {
        true => Ok(()),
        false => Err(Problem::Refused(String::from_utf8_lossy(&out.stderr).into_owned())),
    }
}
