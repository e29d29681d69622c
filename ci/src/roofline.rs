//! `cargo ci roofline`: what ports and instructions allow the x86 kernels of the cpu plugin, from their machine code: one turn of
//! each innermost loop, cut out of the compiler's assembly, in `llvm-mca`. A static model (docs/perf/roofline.md).

mod kernels;
mod loops;

use crate::{cargo, matrix, run};
use kernels::{Kernel, kernels};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Turns that are simulated.
const TURNS: usize = 100;

/// Prints the table: `--cpu NAME` instead of the model of each level, `--only TEXT` of the names, `--show` with the loops.
pub fn roofline(words: &[&str]) -> Result<(), String> {
    let value = |name: &str| words.iter().position(|w| *w == name).and_then(|i| words.get(i + 1)).copied();
    let (cpu, only) = (value("--cpu"), value("--only").unwrap_or(""));
    let assembly = assembly(&matrix::target().join("roofline"))?;
    println!("| loop | level | cpu | instructions | MACs | ports | simulated | p0 + p5 | full |");
    println!("|---|---|---|--:|--:|--:|--:|--:|---|");
    for kernel in kernels().iter().filter(|k| k.name.contains(only) || k.level.contains(only)) {
        let cpu = cpu.unwrap_or(if kernel.is_wide() { "icelake-server" } else { "skylake" });
        let turn = loops::function(&assembly, &kernel.function)
            .and_then(|lines| loops::one_turn(&lines, kernel.instruction, kernel.n, kernel.with));
        let Some(turn) = turn else {
            return Err(format!(
                "{} for {}: no such loop; see ci/src/roofline/kernels.rs",
                kernel.name, kernel.level
            ));
        };
        println!("{}", row(kernel, cpu, &turn, &simulate(cpu, &turn)?)?);
        if words.contains(&"--show") {
            println!("{}", turn.join("\n"));
        }
    }
    Ok(())
}

/// Compiles the plugin as released, with symbols that have the types of generic functions, and reads its assembly.
fn assembly(target: &Path) -> Result<String, String> {
    let mut rustc = cargo();
    rustc.args(["rustc", "--locked", "--release", "-p", "llmrt-cpu", "--lib", "--target-dir"]).arg(target);
    run(rustc.args(["--", "--emit", "asm", "-C", "symbol-mangling-version=v0"]))?;
    let deps = target.join("release/deps");
    let read = std::fs::read_dir(&deps).map_err(|e| format!("{}: {e}", deps.display()))?;
    // A file per codegen unit: `llmrt_cpu-HASH.….s`, beside those of earlier compilers.
    let files: Vec<PathBuf> =
        read.flatten().map(|entry| entry.path()).filter(|file| is_assembly(file)).collect();
    let newest = files
        .iter()
        .max_by_key(|file| file.metadata().and_then(|m| m.modified()).ok())
        .map(|file| hash(file));
    let of_newest = files.iter().filter(|file| Some(hash(file)) == newest);
    of_newest
        .map(|file| std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display())))
        .collect()
}

fn is_assembly(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "s")
}

/// What stands before the first dot of a file's name.
fn hash(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_string()
}

/// What llvm-mca reports of a loop.
fn simulate(cpu: &str, turn: &[&str]) -> Result<String, String> {
    let mut mca = Command::new("llvm-mca");
    mca.args([
        &format!("-mcpu={cpu}"),
        &format!("-iterations={TURNS}"),
        "-mattr=+avxvnni",
        "-instruction-info=0",
    ]);
    let mut mca = mca.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| {
        let missing =
            if e.kind() == ErrorKind::NotFound { " (it comes with LLVM: apt install llvm)" } else { "" };
        format!("llvm-mca: {e}{missing}")
    })?;
    let text = turn.join("\n") + "\n";
    mca.stdin
        .take()
        .map_or(Ok(()), |mut to| to.write_all(text.as_bytes()))
        .map_err(|e| format!("llvm-mca: {e}"))?;
    let out = mca.wait_with_output().map_err(|e| format!("llvm-mca: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("llvm-mca -mcpu={cpu}: {}", out.status)),
    }
}

/// A row of the table from a report.
fn row(kernel: &Kernel, cpu: &str, turn: &[&str], report: &str) -> Result<String, String> {
    let number = |name: &str| -> Result<f64, String> {
        let value = report.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        value.and_then(|v| v.parse().ok()).ok_or_else(|| format!("llvm-mca: no `{name}` in\n{report}"))
    };
    let (ports, simulated) = (number("Block RThroughput:")?, number("Total Cycles:")? / TURNS as f64);
    // `[2] - SKLPort0` lines name what the numbers two lines after `Resource pressure per iteration` are of.
    let names = report
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]")?.1.trim().strip_prefix("- "));
    let pressure =
        report.lines().skip_while(|line| !line.starts_with("Resource pressure per iteration")).nth(2);
    let used = names.zip(pressure.unwrap_or("").split_whitespace().map(|v| v.parse().unwrap_or(0.0)));
    let full: Vec<&str> =
        used.filter(|(_, cycles): &(_, f64)| *cycles >= ports).map(|(name, _)| name).collect();
    let (Kernel { name, level, macs, .. }, n) = (kernel, turn.len());
    // Ports 0 and 5 alone take operations of 512 bits, which the models of LLVM 14 give port 1, too.
    let wide =
        if kernel.is_wide() { format!("{:.1}", loops::operations(turn) as f64 / 2.0) } else { "–".into() };
    Ok(format!(
        "| {name} | {level} | {cpu} | {n} | {macs} | {ports:.1} | {simulated:.1} | {wide} | {} |",
        full.join(" ")
    ))
}
