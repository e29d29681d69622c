//! Rows of the matrix: `[package.metadata.llmrt]` in the `Cargo.toml` of each folder in `plugins/`.
//!
//! A plugin without that section has defaults: its own tests, its own library, and one run of `llmrt conform`.

use crate::cargo;
use serde_json::Value;
use std::path::Path;

/// A row of the matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Name of the plugin and of its job: that of its folder.
    pub plugin: String,
    /// The packages with its own tests; empty: it has none.
    pub packages: Vec<String>,
    /// The packages that make its shared library and those it needs beside it; empty: it is C.
    pub libraries: Vec<String>,
    /// The tests of `llmrt-tests` that load it: each a binary, and filters such as `cuda::`; empty: none does.
    pub tests: Vec<String>,
    /// Runs of `llmrt conform`, as the words after the file's name; `NAME=VALUE` in front of them is put into the
    /// environment.
    pub conform: Vec<String>,
    /// The package whose program writes simulated libraries in place of the vendor's.
    pub simulator: Option<String>,
    /// Variables that name the folder it writes, or a folder in that.
    pub simulated: Vec<(String, String)>,
}

/// The kit is what plugins are made with.
const NO_PLUGIN: &str = "plugins/kit";

/// One job per plugin of this tree, by name, and the example in C.
pub fn all() -> Result<Vec<Job>, String> {
    let out = cargo().args(["metadata", "--format-version", "1", "--no-deps", "--locked"]).output();
    let out = out.map_err(|e| format!("cargo metadata: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo metadata: {}: {}", out.status, String::from_utf8_lossy(&out.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: not JSON: {e}"))?;
    let mut jobs = of_metadata(&metadata)?;
    jobs.push(c());
    Ok(jobs)
}

/// The example in C has no package.
fn c() -> Job {
    Job {
        plugin: "c".into(),
        packages: vec![],
        libraries: vec![],
        tests: ["c_plugin", "mixed"].map(String::from).into(),
        conform: vec![String::new()],
        simulator: None,
        simulated: vec![],
    }
}

fn of_metadata(metadata: &Value) -> Result<Vec<Job>, String> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let mut jobs = Vec::new();
    for package in packages {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let Some(folder) = folder.filter(|f| f.parent() == Some(Path::new("plugins"))) else { continue };
        let Some(plugin) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        if folder != Path::new(NO_PLUGIN) {
            jobs.push(job(plugin, package).map_err(|e| format!("{}/Cargo.toml: {e}", folder.display()))?);
        }
    }
    jobs.sort_by(|a, b| a.plugin.cmp(&b.plugin));
    Ok(jobs)
}

fn job(plugin: &str, package: &Value) -> Result<Job, String> {
    const KEYS: [&str; 6] = ["packages", "libraries", "tests", "conform", "simulator", "simulated"];
    let row = &package["metadata"]["llmrt"];
    if let Some(key) = row.as_object().and_then(|row| row.keys().find(|key| !KEYS.contains(&key.as_str()))) {
        return Err(format!("[package.metadata.llmrt] has a key `{key}`; expected {}", KEYS.join(", ")));
    }
    let name = package["name"].as_str().unwrap_or_default();
    let list = |key: &str, default: &[&str]| match &row[key] {
        Value::Null => Ok(default.iter().map(|s| s.to_string()).collect()),
        Value::Array(items) => items.iter().map(|item| text(key, item)).collect::<Result<Vec<_>, _>>(),
        _ => Err(format!("`{key}` of [package.metadata.llmrt] is no list of texts")),
    };
    let simulated = row["simulated"].as_object().into_iter().flatten();
    Ok(Job {
        plugin: plugin.into(),
        packages: list("packages", &[name])?,
        libraries: list("libraries", &[name])?,
        tests: list("tests", &[])?,
        conform: list("conform", &[""])?,
        simulator: row["simulator"].as_str().map(str::to_owned),
        simulated: simulated
            .map(|(key, dir)| Ok((key.clone(), text(key, dir)?)))
            .collect::<Result<_, String>>()?,
    })
}

fn text(key: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("`{key}` of [package.metadata.llmrt] is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(metadata: Value) -> Result<Vec<Job>, String> {
        let package = |folder: &str, metadata: Value| json!({"name": "llmrt-x", "manifest_path": format!("/r/{folder}/Cargo.toml"), "metadata": metadata});
        of_metadata(&json!({"workspace_root": "/r", "packages": [
            package("plugins/x", metadata), package("plugins/x/sim", Value::Null),
            package("plugins/kit", Value::Null), package("runtime/host", Value::Null),
        ]}))
    }

    #[test]
    fn a_folder_in_plugins_is_a_job_without_any_edit() {
        let jobs = of(Value::Null).unwrap();
        let [job] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!((job.plugin.as_str(), &job.packages[..]), ("x", &["llmrt-x".to_string()][..]));
        assert_eq!((&job.libraries, &job.conform), (&job.packages, &vec![String::new()]));
        assert!(job.tests.is_empty());
    }

    #[test]
    fn its_section_replaces_defaults() {
        let row = json!({"llmrt": {"tests": ["sim"], "simulator": "s", "simulated": {"X_DIR": "a"}}});
        let job = of(row).unwrap().remove(0);
        assert_eq!(job.tests, ["sim"]);
        assert_eq!((job.simulator.as_deref(), &job.simulated[0].1[..]), (Some("s"), "a"));
    }

    #[test]
    fn a_misspelt_key_or_a_wrong_type_is_an_error_that_names_the_file() {
        let error = of(json!({"llmrt": {"test": []}})).unwrap_err();
        assert!(
            error.starts_with("plugins/x/Cargo.toml: [package.metadata.llmrt] has a key `test`"),
            "{error}"
        );
        let error = of(json!({"llmrt": {"tests": "sim"}})).unwrap_err();
        assert_eq!(error, "plugins/x/Cargo.toml: `tests` of [package.metadata.llmrt] is no list of texts");
    }
}
