//! The matrix: one job per plugin, and what each job runs.

use crate::{c_plugin, cargo, root, run};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A row of the matrix.
pub struct Job {
    /// Name of the plugin and of its job.
    pub plugin: &'static str,
    /// The packages with its own tests; empty: it has none.
    packages: &'static [&'static str],
    /// The packages that make its shared library and those it needs beside it; empty: it is C.
    libraries: &'static [&'static str],
    /// Arguments of `cargo test -p llmrt-tests` that select the tests which load it.
    tests: &'static [&'static str],
    /// Runs of `llmrt conform`, as the words behind the file's name; `NAME=VALUE` in front of them is put into the
    /// environment.
    conform: &'static [&'static str],
}

/// One job per plugin of this tree.
pub const JOBS: &[Job] = &[
    Job {
        plugin: "cpu",
        packages: &["llmrt-cpu"],
        libraries: &["llmrt-cpu-so"],
        tests: &["--test", "archs", "--test", "models", "--test", "scheduler"],
        conform: &[""],
    },
    Job {
        plugin: "null",
        packages: &["llmrt-null"],
        libraries: &["llmrt-null"],
        tests: &["--test", "conform", "a_device_without_ops"],
        conform: &[""],
    },
    Job {
        plugin: "sim",
        packages: &["llmrt-sim"],
        libraries: &["llmrt-sim"],
        tests: &["--test", "sim", "--test", "mixed", "--test", "device_topk"],
        conform: &[
            "--device sim:sim --plugin-option sim.queue=delay:50",
            "--device sim:sim --plugin-option sim.queue=sync",
            "--device sim:310p",
        ],
    },
    Job {
        plugin: "cann",
        packages: &["llmrt-cann", "llmrt-cann-sim"],
        libraries: &["llmrt-cann", "llmrt-cann-sim"],
        tests: &["--test", "cann"],
        // Every level, on both chips and in all orders of execution; ops by parts, without L3 on two cards. What repeats a case to see leaks takes
        // long where every launch is delayed.
        conform: &[
            "LLMRT_CANN_SIM=memory=2g,queue=delay --time-limit 600",
            "LLMRT_CANN_SIM=memory=2g,queue=sync --part 1/4 --time-limit 600",
            "LLMRT_CANN_SIM=memory=2g,queue=now --part 2/4 --time-limit 600",
            "LLMRT_CANN_SIM=memory=2g,soc=Ascend310P3,queue=sync --part 3/4 --time-limit 600",
            "LLMRT_CANN_SIM=memory=2g,devices=2,vmm=0,queue=delay --level L0,L1,L2,L4,L5 --time-limit 600",
        ],
    },
    Job {
        plugin: "cuda",
        packages: &["llmrt-cuda", "llmrt-cuda-sim"],
        libraries: &["llmrt-cuda", "llmrt-cuda-sim"],
        tests: &["--test", "cuda", "--test", "card_script", "--test", "device_topk"],
        // Ops by parts in both orders of execution; two cards without virtual memory, and an older chip; products by cuBLASLt.
        conform: &[
            "LLMRT_CUDA_CUBLAS=0 LLMRT_CUDA_SIM=memory=2g,queue=late --part 1/2 --time-limit 600",
            "LLMRT_CUDA_CUBLAS=0 LLMRT_CUDA_SIM=memory=2g,queue=now,sm=75 --part 2/2 --time-limit 600",
            "LLMRT_CUDA_CUBLAS=0 LLMRT_CUDA_SIM=memory=2g,devices=2,vmm=0 --level L0,L1,L2,L4,L5 --time-limit 600",
            "LLMRT_CUDA_SIM=memory=2g,queue=late --ops mul_mat --time-limit 600",
        ],
    },
    Job {
        plugin: "fault",
        packages: &["llmrt-fault"],
        libraries: &["llmrt-fault", "llmrt-sim"],
        tests: &["--test", "fault"],
        conform: &["--device fault:sim --plugin-option fault.wrap=sim"],
    },
    Job {
        plugin: "c",
        packages: &[],
        libraries: &[],
        tests: &["--test", "c_plugin", "--test", "mixed"],
        conform: &[""],
    },
];

/// Prints the plugins' names, one a line or as a JSON array.
pub fn list(json: bool) -> Result<(), String> {
    let names: Vec<_> = JOBS.iter().map(|j| j.plugin).collect();
    if json {
        println!("[{}]", names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(","));
    } else {
        names.iter().for_each(|n| println!("{n}"));
    }
    Ok(())
}

/// Runs one job: the plugin's own tests, its shared library by itself, the tests that load it, and `llmrt conform`.
pub fn plugin(name: &str) -> Result<(), String> {
    let job = find(name)?;
    if !job.packages.is_empty() {
        let packages = job.packages.iter().flat_map(|name| ["-p", name]);
        run(cargo().args(["test", "--locked", "-p", "llmrt-plugin"]).args(packages))?;
        run(cargo().args(["build", "--locked"]).args(job.libraries.iter().flat_map(|name| ["-p", name])))?;
    }
    run(cargo().args(["test", "--locked", "-p", "llmrt-tests"]).args(job.tests))?;
    conform_all(&[job])
}

/// Every case of `llmrt conform` on one plugin, or on each.
pub fn conform(name: Option<&str>) -> Result<(), String> {
    match name {
        Some(name) => conform_all(&[find(name)?]),
        None => conform_all(&JOBS.iter().collect::<Vec<_>>()),
    }
}

/// Builds in one go, so that dependencies are built once: the tests build these packages too, with these features.
fn conform_all(jobs: &[&Job]) -> Result<(), String> {
    let libraries: BTreeSet<&str> = jobs.iter().flat_map(|job| job.libraries).copied().collect();
    let packages = std::iter::once("llmrt").chain(libraries).flat_map(|name| ["-p", name]);
    run(cargo().args(["build", "--locked"]).args(packages))?;
    let built = target().join("debug");
    for job in jobs {
        let library = match job.libraries {
            [] => c_plugin(&target().join("c"), &["-O2"])?,
            _ => built.join(format!("libllmrt_{}.so", job.plugin)),
        };
        for words in job.conform {
            println!("\nconform {} {words}", job.plugin);
            let mut llmrt = Command::new(built.join("llmrt"));
            let is_variable = |word: &&str| word.contains('=') && !word.starts_with('-');
            let variables = words.split_whitespace().take_while(is_variable);
            llmrt.envs(variables.clone().filter_map(|word| word.split_once('=')));
            if job.plugin == "cann" {
                llmrt.env("LLMRT_CANN_LIB_DIR", simulated(&built, "cann")?);
            }
            if job.plugin == "cuda" {
                let folder = simulated(&built, "cuda")?;
                llmrt.env("LLMRT_CUDA_CUBLAS_DIR", folder.join("cublas")).env("LLMRT_CUDA_LIB_DIR", folder);
            }
            let words = words.split_whitespace().skip(variables.count());
            run(llmrt.arg("conform").arg(&library).args(words))?;
        }
    }
    Ok(())
}

/// A folder of simulated libraries in place of the vendor's, written by the simulator's own program.
fn simulated(built: &Path, plugin: &str) -> Result<PathBuf, String> {
    let dir = target().join(format!("simulated-{plugin}"));
    run(Command::new(built.join(format!("llmrt-{plugin}-sim"))).arg(&dir))?;
    Ok(dir)
}

fn find(name: &str) -> Result<&'static Job, String> {
    let job = JOBS.iter().find(|j| j.plugin == name);
    job.ok_or_else(|| format!("no plugin `{name}`; `cargo ci matrix` lists them"))
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plugin_of_the_tree_has_a_job() {
        let folders = std::fs::read_dir(root().join("plugins")).unwrap().flatten();
        let mut names: Vec<_> = folders.map(|f| f.file_name().into_string().unwrap()).collect();
        // The kit is what plugins are made with, and the example is the one in C.
        names.retain(|name| name != "kit" && name != "examples");
        names.push("c".into());
        names.sort();
        let mut jobs: Vec<_> = JOBS.iter().map(|job| job.plugin).collect();
        jobs.sort_unstable();
        assert_eq!(names, jobs);
    }
}
