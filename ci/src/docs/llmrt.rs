//! The program whose help texts and tables the pages show.

use crate::matrix::target;
use crate::{cargo, run};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `llmrt`, built from this tree.
pub struct Llmrt {
    program: PathBuf,
}

impl Llmrt {
    /// Builds it.
    pub fn build() -> Result<Llmrt, String> {
        run(cargo().args(["programs", "--quiet"]))?;
        Ok(Llmrt { program: target().join("debug/llmrt") })
    }

    /// What it writes to stdout, without this machine's environment and plugins, in lines of 100 columns.
    pub fn output(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).env_clear();
        command.env("COLUMNS", "100").env("LLMRT_PLUGIN_PATH", "");
        let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        if !out.status.success() {
            let stderr = String::from_utf8_lossy(&out.stderr);
            return Err(format!("llmrt {}: {}: {stderr}", arguments.join(" "), out.status));
        }
        String::from_utf8(out.stdout).map_err(|e| format!("llmrt {}: {e}", arguments.join(" ")))
    }
}
