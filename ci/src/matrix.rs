//! The matrix: one job per plugin, and what each job runs.

mod job;

use crate::{c_plugin, cargo, root, run};
use job::Job;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the plugins' names, one a line or as a JSON array.
pub fn list(json: bool) -> Result<(), String> {
    let names: Vec<_> = job::all()?.into_iter().map(|job| job.plugin).collect();
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
    for tests in &job.tests {
        let (binary, filters) = tests.split_once(' ').unwrap_or((tests, ""));
        let test = ["test", "--locked", "-p", "llmrt-tests", "--test", binary, "--"];
        run(cargo().args(test).args(filters.split_whitespace()))?;
    }
    conform_all(&[job])
}

/// Every case of `llmrt conform` on one plugin, or on each.
pub fn conform(name: Option<&str>) -> Result<(), String> {
    match name {
        Some(name) => conform_all(&[find(name)?]),
        None => conform_all(&job::all()?),
    }
}

fn conform_all(jobs: &[Job]) -> Result<(), String> {
    let libraries: BTreeSet<&str> = jobs.iter().flat_map(|job| &job.libraries).map(String::as_str).collect();
    run(cargo().arg("programs").args(libraries.into_iter().flat_map(|name| ["-p", name])))?;
    let built = target().join("debug");
    for job in jobs {
        let library = match &job.libraries[..] {
            [] => c_plugin(&target().join("c"), &["-O2"])?,
            _ => built.join(format!("libllmrt_{}.so", job.plugin)),
        };
        let simulated = simulated(&built, job)?;
        for words in &job.conform {
            println!("\nconform {} {words}", job.plugin);
            let mut llmrt = Command::new(built.join("llmrt"));
            let is_variable = |word: &&str| word.contains('=') && !word.starts_with('-');
            let variables = words.split_whitespace().take_while(is_variable);
            llmrt.envs(variables.clone().filter_map(|word| word.split_once('=')));
            llmrt.envs(simulated.iter().map(|(name, dir)| (name, dir)));
            let words = words.split_whitespace().skip(variables.count());
            run(llmrt.arg("conform").arg(&library).args(words))?;
        }
    }
    Ok(())
}

/// Variables that name folders of simulated libraries in place of the vendor's, written by the simulator's own program.
fn simulated(built: &Path, job: &Job) -> Result<Vec<(String, PathBuf)>, String> {
    let Some(simulator) = &job.simulator else { return Ok(Vec::new()) };
    let dir = target().join(format!("simulated-{}", job.plugin));
    run(Command::new(built.join(simulator)).arg(&dir))?;
    Ok(job.simulated.iter().map(|(name, below)| (name.clone(), dir.join(below))).collect())
}

fn find(name: &str) -> Result<Job, String> {
    let job = job::all()?.into_iter().find(|job| job.plugin == name);
    job.ok_or_else(|| format!("no plugin `{name}`; `cargo ci matrix` lists them"))
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    target_of(root())
}

/// Where cargo builds another tree.
pub fn target_of(tree: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |dir| tree.join(dir))
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
        let mut jobs: Vec<_> = job::all().unwrap().into_iter().map(|job| job.plugin).collect();
        jobs.sort_unstable();
        assert_eq!(names, jobs);
    }

    /// The rows name test binaries, and modules in them, that exist.
    #[test]
    fn tests_named_by_rows_exist() {
        for job in job::all().unwrap() {
            for tests in &job.tests {
                let (binary, filters) = tests.split_once(' ').unwrap_or((tests, ""));
                let path = root().join("tests/tests").join(binary);
                assert!(path.with_extension("rs").exists() || path.join("main.rs").exists(), "{tests}");
                for module in filters.split_whitespace() {
                    let (module, _) = module.split_once("::").expect("filters start with a module");
                    assert!(path.join(module).with_extension("rs").exists(), "{}: {module}", job.plugin);
                }
            }
            assert_eq!(job.simulator.is_some(), !job.simulated.is_empty(), "{}", job.plugin);
        }
    }
}
