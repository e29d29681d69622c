//! `llmrt convert`: a llama2.c checkpoint as a GGUF file with F32 weights.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::model::OpenModel;
use crate::new_file::{self, NewFile};
use crate::output::{bytes, n_things, note};
use clap::Args;
use llmrt_gguf::writer::{self, Tables, WriteError};
use llmrt_gguf::{Metadata, TensorInfo};
use llmrt_host::load::{ModelFiles, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Convert a llama2.c checkpoint to GGUF, with F32 weights.
#[derive(Args, Debug)]
pub struct Convert {
    /// Checkpoint: v0, v1 or v2 (int8).
    #[arg(value_name = "CHECKPOINT")]
    pub input: PathBuf,
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// tokenizer.bin [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Overwrite the output; the checkpoint itself and its tokenizer.bin are never overwritten.
    #[arg(long)]
    pub force: bool,
}

impl Command for Convert {
    const NAME: &'static str = "convert";

    fn run(&self, _: &Global) -> Result<()> {
        convert(self)
    }
}

/// Bytes that are converted at a time.
const CHUNK: u64 = 4 << 20;

/// Writes the GGUF file; it appears under its name only when it is whole.
fn convert(args: &Convert) -> Result<()> {
    let options = OpenOptions { tokenizer: args.tokenizer.clone(), ..OpenOptions::default() };
    let model = OpenModel::open(Some(&args.input), &options)?;
    if !model.is_checkpoint() {
        return Err(model
            .error("is no llama2.c checkpoint: `convert` turns those into GGUF; this file runs as it is"));
    }
    let inputs = std::iter::once(args.input.as_path()).chain(model.tokenizer_bin());
    new_file::check_output(&args.output, args.force, inputs)?;
    if !model.metadata().contains("tokenizer.ggml.tokens") {
        note(format_args!("{}: there is no tokenizer.bin, so the GGUF file gets no vocabulary", model.name));
    }

    let tensors = &model.files.model.tensors;
    let tables = Tables {
        metadata: metadata(&model, &args.input),
        tensors: tensors.iter().map(TensorInfo::shape).collect(),
        ..Tables::default()
    };
    let mut file = NewFile::create(&args.output)?;
    let written = writer::write(file.out(), &tables, |i, out| copy(&model.files, &tensors[i], out));
    let n = written.map_err(|e| match e {
        _ if interrupt::is_requested() => Error::interrupted(),
        WriteError::Invalid(e) => model.error(e),
        WriteError::Io(e) => Error::unwritable(&args.output, &e),
        other => Error::output(&args.output, other),
    })?;
    file.finish()?;
    note(format_args!("{}: {}, {}", args.output.display(), n_things(tensors.len(), "tensor"), bytes(n)));
    Ok(())
}

/// The checkpoint's metadata, and the keys that every GGUF file has.
fn metadata(model: &OpenModel, input: &Path) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("general.name", input.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    metadata.set("general.file_type", 0u32); // all F32
    for (key, value) in model.metadata().iter() {
        metadata.set(key, value.clone());
    }
    metadata
}

/// A tensor's bytes, a chunk at a time.
pub fn copy(files: &ModelFiles, tensor: &TensorInfo, out: &mut dyn Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK.min(tensor.nbytes) as usize];
    let mut at = 0;
    while at < tensor.nbytes {
        if interrupt::is_requested() {
            return Err(io::Error::other("interrupted"));
        }
        let part = &mut chunk[..CHUNK.min(tensor.nbytes - at) as usize];
        files.read(tensor, at, part).map_err(io::Error::other)?;
        out.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}
