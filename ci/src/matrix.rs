//! The matrix: one job per plugin, and what each job runs.

use crate::{cargo, run};

/// A row of the matrix.
pub struct Job {
    /// Name of the plugin and of its job.
    pub plugin: &'static str,
    /// The package with its tests.
    pub package: &'static str,
    /// The package that makes its shared library.
    pub library: &'static str,
}

/// One job per plugin of this tree.
pub const JOBS: &[Job] = &[
    Job { plugin: "cpu", package: "llmrt-cpu", library: "llmrt-cpu-so" },
    Job { plugin: "null", package: "llmrt-null", library: "llmrt-null" },
    Job { plugin: "sim", package: "llmrt-sim", library: "llmrt-sim" },
    Job { plugin: "fault", package: "llmrt-fault", library: "llmrt-fault" },
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

/// Runs one job: the plugin's own tests, its shared library, and the tests that load it.
pub fn plugin(name: &str) -> Result<(), String> {
    let job = JOBS
        .iter()
        .find(|j| j.plugin == name)
        .ok_or_else(|| format!("no plugin `{name}`; `cargo ci matrix` lists them"))?;
    run(cargo().args(["test", "--locked", "-p", job.package, "-p", "llmrt-plugin"]))?;
    run(cargo().args(["build", "--locked", "-p", job.library]))?;
    run(cargo().args(["test", "--locked", "-p", "llmrt-tests", "--", job.plugin]))
}
