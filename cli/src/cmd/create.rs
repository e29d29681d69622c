//! `llmrt create`: a model of the store from a Modelfile.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::output::{bytes, note};
use crate::{store, text};
use clap::Args;
use llmrt_gguf::printable_path;
use llmrt_host::load::OpenOptions;
use llmrt_store::{CreateOptions, Modelfile, Name};
use std::path::{Path, PathBuf};

/// Make a model of the store from a Modelfile.
///
/// FROM names a GGUF file, relative to the Modelfile's folder, or a model of the store, whose layers stay but for those that
/// the Modelfile sets. The others are PARAMETER, TEMPLATE, SYSTEM, LICENSE, MESSAGE and REQUIRES, as Ollama has them;
/// ADAPTER is not supported.
#[derive(Args, Debug)]
#[command(after_help = CREATE_HELP)]
pub struct Create {
    /// Name of the model; one that exists is replaced.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Modelfile; `-`: stdin, with paths relative to the current folder.
    #[arg(short = 'f', long = "file", value_name = "FILE", default_value = "Modelfile")]
    pub file: PathBuf,
    /// Make a hard link of the GGUF file instead of a copy, where the file system can: a later change of the file in place
    /// changes the model.
    #[arg(long)]
    pub link: bool,
    /// No progress and no line at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

const CREATE_HELP: &str = "\
Example of a Modelfile:
  FROM ./model-q4_k_m.gguf
  PARAMETER temperature 0.7
  PARAMETER stop \"<|im_end|>\"
  SYSTEM \"\"\"You are brief.\"\"\"";

impl Command for Create {
    const NAME: &'static str = "create";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, _: &Global) -> Result<()> {
        let name: Name = self.name.parse()?;
        let parsed = Modelfile::parse(&text::of_file(&self.file)?).map_err(|e| named(&self.file, e))?;
        let folder = self.file.parent().unwrap_or(Path::new("")).to_path_buf();
        let base = folder.join(parsed.from());
        let is_gguf = base.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
        if is_gguf && base.is_file() {
            // What cannot be read is refused before it is stored.
            OpenModel::open(Some(&base), &OpenOptions::default())?;
        }
        let (store, options) = (store::open()?, CreateOptions { folder, link: self.link });
        let created = store::with_progress(self.quiet, |watch| store.create(&name, &parsed, &options, watch));
        created.map_err(|e| e.of_model(&printable_path(&self.file)))?;
        if !self.quiet {
            note(format_args!("{name}: created, {}", bytes(store.entry(&name)?.size)));
        }
        Ok(())
    }
}

/// The error with the Modelfile's name.
fn named(file: &Path, e: llmrt_store::Error) -> Error {
    Error::from(e).of_model(&printable_path(file))
}
