//! The matrix: one job per plugin, and what each job runs.

use crate::{cargo, run};

/// A row of the matrix.
pub struct Job {
    /// Name of the plugin and of its job.
    pub plugin: &'static str,
    /// Its package.
    pub package: &'static str,
}

/// One job per plugin of this tree.
pub const JOBS: &[Job] =
    &[Job { plugin: "cpu", package: "llmrt-cpu" }, Job { plugin: "null", package: "llmrt-null" }];

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

/// Runs one job: the plugin's own tests, its shared library, and the tests that load it.
pub fn plugin(name: &str) -> Result<(), String> {
    let job = JOBS
        .iter()
        .find(|j| j.plugin == name)
        .ok_or_else(|| format!("no plugin `{name}`; `cargo ci matrix` lists them"))?;
    run(cargo().args(["test", "--locked", "-p", job.package, "-p", "llmrt-plugin"]))?;
    run(cargo().args(["build", "--locked", "-p", job.package]))?;
    run(cargo().args(["test", "--locked", "-p", "llmrt-tests", "--", job.plugin]))
}
