//! `llmrt stop`: a server unloads a model.

use crate::args::{Global, ServerArgs};
use crate::cmd::Command;
use crate::error::Result;
use crate::output::note;
use crate::remote::Remote;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Unloading waits for the memory to be free.
const PATIENCE: Duration = Duration::from_secs(600);

/// Unload a model of a running server; its requests are answered first.
///
/// The next request for the model loads it again.
#[derive(Args, Debug)]
pub struct Stop {
    /// Model, as `llmrt ps` lists it.
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl Command for Stop {
    const NAME: &'static str = "stop";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, _: &Global) -> Result<()> {
        let remote = Remote::new(&self.server, PATIENCE)?;
        let body = json!({ "model": self.name, "keep_alive": 0, "stream": false });
        remote.post("/api/generate", &body).map_err(|e| remote.error(e))?;
        let loaded = remote.get("/api/ps").map_err(|e| remote.error(e))?;
        if is_loaded(&loaded, &self.name) {
            note(format_args!("{}: is unloaded when its requests are answered", self.name));
        }
        Ok(())
    }
}

/// Whether the answer of `/api/ps` has a model, with or without its tag.
fn is_loaded(answer: &Value, name: &str) -> bool {
    let models = answer["models"].as_array().into_iter().flatten();
    let mut names = models.filter_map(|model| model["name"].as_str());
    names.any(|loaded| loaded == name || loaded.strip_suffix(":latest") == Some(name))
}
