//! `llmrt show`: what a model of the store is made of.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::{Error, Exit, Result};
use crate::output::{self, bytes};
use crate::store;
use clap::Args;
use llmrt_gguf::printable;
use llmrt_store::{Instruction, Layer, Name, StoredModel, media};
use serde_json::{Value, json};
use std::path::Path;

/// Show what a model of the store is made of.
///
/// `llmrt inspect NAME` shows what its GGUF file holds.
#[derive(Args, Debug)]
pub struct Show {
    /// Model.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// One part alone, as it is stored.
    #[command(flatten)]
    pub part: Part,
}

/// What is shown.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct Part {
    /// Only a Modelfile that makes the model again.
    #[arg(long)]
    pub modelfile: bool,
    /// Only the parameters.
    #[arg(long)]
    pub parameters: bool,
    /// Only the chat template.
    #[arg(long)]
    pub template: bool,
    /// Only the system message.
    #[arg(long)]
    pub system: bool,
    /// Only the licences.
    #[arg(long)]
    pub license: bool,
    /// All as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Command for Show {
    const NAME: &'static str = "show";

    fn run(&self, _: &Global) -> Result<()> {
        if Path::new(&self.name).is_file() {
            return Err(Error::usage(format!(
                "{0}: is a file, and `show` takes a model of the store: `llmrt inspect {0}` shows what a file holds",
                self.name
            )));
        }
        let model = store::open()?.model(&self.name.parse::<Name>()?)?;
        let part = &self.part;
        let text = match () {
            () if part.json => return Ok(output::json(&as_json(&model))?),
            () if part.modelfile => model.modelfile().to_text()?,
            () if part.parameters => parameters(&model),
            () if part.template => given(&model, "template", &model.template)?,
            () if part.system => given(&model, "system message", &model.system)?,
            () if part.license => model.licenses.join("\n\n"),
            () => summary(&model),
        };
        Ok(output::print(format_args!("{}\n", text.trim_end()))?)
    }
}

fn given(model: &StoredModel, what: &str, text: &Option<String>) -> Result<String> {
    let missing = || Error::new(Exit::Failure, format!("{}: has no {what} of its own", model.name));
    text.clone().ok_or_else(missing)
}

/// A line for each parameter, as a Modelfile has it.
fn parameters(model: &StoredModel) -> String {
    let line = |instruction: &Instruction| match instruction {
        Instruction::Parameter(name, value) => Some(format!("{name:<20} {}\n", printable(value))),
        _ => None,
    };
    model.modelfile().instructions.iter().filter_map(line).collect()
}

fn summary(model: &StoredModel) -> String {
    let mut text = format!("{}\n", model.name);
    let mut row = |key: &str, value: String| text += &format!("  {key:<10} {}\n", printable(&value));
    row("id", model.id.to_string());
    row("file", model.gguf.display().to_string());
    for key in ["source", "requires"] {
        if let Some(value) = model.config.get(key).and_then(Value::as_str) {
            row(key, value.into());
        }
    }
    for layer in model.manifest.blobs() {
        row("layer", format!("{} {} {}", layer.digest.short(), bytes(layer.size), kind(layer)));
    }
    let sections = [
        ("parameters", parameters(model)),
        ("system", model.system.clone().unwrap_or_default()),
        ("template", model.template.clone().unwrap_or_default()),
        ("licence", model.licenses.iter().filter_map(|text| text.trim().lines().next()).collect()),
    ];
    for (title, section) in sections.iter().filter(|(_, section)| !section.trim().is_empty()) {
        text += &format!("\n{title}\n");
        section.trim_end().lines().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

/// `model` of `application/vnd.ollama.image.model`.
fn kind(layer: &Layer) -> &str {
    if layer.media_type == media::CONFIG {
        return "config";
    }
    layer.media_type.strip_prefix("application/vnd.ollama.image.").unwrap_or(&layer.media_type)
}

fn as_json(model: &StoredModel) -> Value {
    json!({
        "name": model.name.to_string(), "id": model.id, "file": model.gguf.display().to_string(),
        "parameters": model.params, "system": model.system, "template": model.template,
        "messages": model.messages, "licenses": model.licenses, "config": model.config,
        "layers": model.manifest.layers,
    })
}
