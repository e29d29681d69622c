//! `cargo ci cuda-kernels`: the kernels of the cuda plugin for every chip, compiled by NVRTC without a card or a driver.
//!
//! Binaries go where the plugin's build looks for them, in the target folder. What the compiler reports of each kernel goes
//! into a table that is kept: `--check` finds a kernel that takes more registers, or begins to spill.

use crate::matrix::target;
use crate::{root, run};
use llmrt_cuda::archive;
use llmrt_cuda::kernels::{FAMILIES, Family, PTX_TARGET, TARGETS};
use llmrt_cuda::nvrtc::{Compiled, Compiler};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const TABLE: &str = "plugins/cuda/kernels/table.txt";
const WHEEL: &str = "nvidia-cuda-nvrtc-cu12==12.9.86";
const HEAD: &str = "# What NVRTC 12.9 makes of each kernel: registers, bytes of stack, bytes spilled, bytes of shared memory.
# Written by `cargo ci cuda-kernels`, compared by `cargo ci cuda-kernels --check`.
";

/// Every family for the targets.
fn jobs<'a>(targets: &[&'a str]) -> Vec<(&'static Family, &'a str)> {
    FAMILIES
        .iter()
        .flat_map(|family| targets.iter().map(move |target| (family, *target)))
        .filter(|(family, target)| family.is_for(target))
        .collect()
}

/// Compiles for one target alone, which takes a seventh of the time: for a card at hand. The table stays as it is.
pub fn only(target: &str) -> Result<(), String> {
    if !TARGETS.contains(&target) {
        return Err(format!("--only {target}: expected one of {}", TARGETS.join(", ")));
    }
    let jobs = jobs(&[target]);
    let compiled = compile_all(&compiler()?, &jobs)?;
    write(&target_file(), &archive(&jobs, &compiled)?)
}

/// Where the plugin's build looks for binaries.
fn target_file() -> PathBuf {
    target().join("cuda-kernels/kernels.bin")
}

/// Compiles everything; writes the table, or compares it.
pub fn cuda_kernels(check: bool) -> Result<(), String> {
    let compiler = compiler()?;
    let jobs = jobs(&[&TARGETS[..], &[PTX_TARGET]].concat());
    let compiled = compile_all(&compiler, &jobs)?;
    let table = table(&jobs, &compiled)?;
    let archive = archive(&jobs, &compiled)?;
    if check {
        println!("once more: a build is reproducible if the bytes are the same");
        reproducible(&jobs, &compiled, &compile_all(&compiler, &jobs)?)?;
    }
    let file = target_file();
    write(&file, &archive)?;
    let mib = |n: usize| n as f64 / (1 << 20) as f64;
    println!(
        "{}: {} families, {} chips and PTX, {:.1} MiB, {:.1} unpacked",
        file.display(),
        FAMILIES.len(),
        TARGETS.len(),
        mib(archive.len()),
        mib(compiled.iter().map(|compiled| compiled.image.len()).sum())
    );
    let stored = std::fs::read_to_string(root().join(TABLE)).unwrap_or_default();
    if !check {
        return write(&root().join(TABLE), table.as_bytes());
    }
    let differing = |line: &&str| !stored.lines().any(|other| other == *line);
    let lines: Vec<&str> = table.lines().filter(differing).collect();
    match stored == table {
        true => Ok(()),
        false => Err(format!("{TABLE} is old; run `cargo ci cuda-kernels`. New:\n{}", lines.join("\n"))),
    }
}

/// From the folder that LLMRT_NVRTC_DIR names, or from the wheel, which pip fetches once into the target folder.
pub fn compiler() -> Result<Compiler, String> {
    if let Some(folder) = std::env::var_os("LLMRT_NVRTC_DIR") {
        return Compiler::open(Some(&PathBuf::from(folder)), None);
    }
    Compiler::open(Some(&from_wheel(WHEEL, "nvidia/cuda_nvrtc/lib")?), None)
}

/// A file or folder of a wheel, which pip fetches once into the target folder.
pub fn from_wheel(wheel: &str, path: &str) -> Result<PathBuf, String> {
    let wheels = target().join("cuda-wheels");
    let found = wheels.join(path);
    if !found.exists() {
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
        run(Command::new("python3").args(pip).arg(&wheels).arg(wheel))?;
        let files = std::fs::read_dir(&wheels).map_err(|e| e.to_string())?.flatten().map(|f| f.path());
        for wheel in files.filter(|file| file.extension().is_some_and(|e| e == "whl")) {
            run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&wheels))?;
        }
    }
    Ok(found)
}

/// On as many threads as the machine has cores: each program is its own.
fn compile_all(compiler: &Compiler, jobs: &[(&Family, &str)]) -> Result<Vec<Compiled>, String> {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Result<Compiled, String>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(family, target)) = jobs.get(i) else { break };
                    let compiled = compiler.compile(family, target);
                    results.lock().expect("no thread panics").insert(i, compiled);
                }
            });
        }
    });
    results.into_inner().expect("no thread panics").into_values().collect()
}

/// Every image of two compilations has the same bytes. What is packed of it has too (`archive`'s own tests).
fn reproducible(jobs: &[(&Family, &str)], first: &[Compiled], second: &[Compiled]) -> Result<(), String> {
    for ((family, target), (a, b)) in jobs.iter().zip(first.iter().zip(second)) {
        if a.image != b.image {
            return Err(format!("{} for {target} has other bytes when it is compiled again", family.name));
        }
    }
    Ok(())
}

/// What the plugin carries; unpacked again it must be what was compiled.
fn archive(jobs: &[(&Family, &str)], compiled: &[Compiled]) -> Result<Vec<u8>, String> {
    let images = jobs.iter().zip(compiled);
    let images = images.map(|((family, target), Compiled { image, .. })| (family.name, *target, &image[..]));
    let images: Vec<_> = images.collect();
    let archive = archive::write(&images);
    let entries = archive::read(&archive);
    let is_whole = entries.len() == images.len()
        && entries.iter().zip(&images).all(|(entry, (_, _, image))| {
            entry.unpack().is_ok_and(|found| found.strip_suffix(b"\0") == Some(image))
        });
    if is_whole { Ok(archive) } else { Err("the archive does not hold what was compiled".into()) }
}

/// A row per kernel, a column per chip; `-` where the chip has no such kernel.
fn table(jobs: &[(&Family, &str)], compiled: &[Compiled]) -> Result<String, String> {
    let mut rows: BTreeMap<(&str, String), BTreeMap<&str, String>> = BTreeMap::new();
    for ((family, target), Compiled { log, .. }) in jobs.iter().zip(compiled) {
        if *target == PTX_TARGET {
            continue;
        }
        for (kernel, numbers) in kernels_of(log)? {
            rows.entry((family.name, kernel)).or_default().insert(target, numbers);
        }
    }
    let mut text = format!("{HEAD}{:<24}", "");
    TARGETS.iter().for_each(|target| text += &format!(" {target:>15}"));
    for ((_, kernel), numbers) in rows {
        text += &format!("\n{kernel:<24}");
        for target in TARGETS {
            text += &format!(" {:>15}", numbers.get(target).map_or("-", String::as_str));
        }
    }
    Ok(text + "\n")
}

/// Name and `registers/stack/spilled/shared` of each kernel in the compiler's log.
pub fn kernels_of(log: &str) -> Result<Vec<(String, String)>, String> {
    let mut kernels = Vec::new();
    let (mut name, mut stack, mut spilled) = ("", 0, 0);
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            name = rest.split('\'').next().unwrap_or("");
        } else if line.contains("bytes stack frame") {
            stack = before(line, "bytes stack").unwrap_or(0);
            spilled = before(line, "bytes spill stores").unwrap_or(0);
        } else if let Some(registers) = before(line, "registers") {
            let shared = before(line, "bytes smem").unwrap_or(0);
            kernels.push((name.to_string(), format!("{registers}/{stack}/{spilled}/{shared}")));
        }
    }
    match kernels.is_empty() {
        true => Err(format!("the compiler reported nothing of its kernels:\n{log}")),
        false => Ok(kernels),
    }
}

/// The number before some words.
fn before(line: &str, words: &str) -> Option<u32> {
    line.split_once(words)?.0.split_whitespace().next_back()?.parse().ok()
}

pub fn write(file: &std::path::Path, bytes: &[u8]) -> Result<(), String> {
    let words = |e: std::io::Error| format!("{}: {e}", file.display());
    file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(words)?;
    std::fs::write(file, bytes).map_err(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_log_has_what_a_kernel_takes() {
        let log = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_75'
ptxas info    : Function properties for k
ptxas         .     32 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 8192 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'l' for 'sm_75'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers";
        let expected = [("k", "12/32/8/8192"), ("l", "255/0/0/0")];
        let found = kernels_of(log).unwrap();
        assert_eq!(found, expected.map(|(name, numbers)| (name.to_string(), numbers.to_string())));
        assert!(kernels_of("").is_err());
    }
}
