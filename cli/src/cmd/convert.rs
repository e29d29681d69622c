//! `llmrt convert`: a llama2.c checkpoint as a GGUF file with F32 weights.

use crate::args::Convert;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::model::OpenModel;
use crate::new_file::NewFile;
use crate::output::{bytes, n_things, note};
use llmrt_gguf::writer::{self, Tables, WriteError};
use llmrt_gguf::{Metadata, TensorInfo};
use llmrt_host::load::{ModelFiles, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that are converted at a time.
const CHUNK: u64 = 4 << 20;

/// Writes the GGUF file; it appears under its name only when it is whole.
pub fn convert(args: &Convert) -> Result<()> {
    let options = OpenOptions { tokenizer: args.tokenizer.clone(), ..OpenOptions::default() };
    let model = OpenModel::open(Some(&args.input), &options)?;
    if !model.is_checkpoint() {
        return Err(model
            .error("is no llama2.c checkpoint: `convert` turns those into GGUF; this file runs as it is"));
    }
    check_output(args, &model)?;
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
        _ if interrupt::is_asked() => Error::interrupted(),
        WriteError::Invalid(e) => model.error(e),
        other => Error::output(&args.output, other),
    })?;
    file.finish()?;
    note(format_args!("{}: {}, {}", args.output.display(), n_things(tensors.len(), "tensor"), bytes(n)));
    Ok(())
}

/// The output must not take the place of what it is made from, nor of anything else unless that is asked for.
fn check_output(args: &Convert, model: &OpenModel) -> Result<()> {
    let is_input = |path: &Path| is_same_file(path, &args.output);
    if is_input(&args.input) || model.tokenizer_bin().is_some_and(is_input) {
        let problem = "is what would be converted: give the GGUF file another name";
        return Err(Error::usage(format!("{}: {problem}", args.output.display())));
    }
    if args.output.exists() && !args.force {
        let problem = "exists already: choose another name, or overwrite it with --force";
        return Err(Error::output(&args.output, problem));
    }
    Ok(())
}

/// Whether two paths lead to one file; links of either kind are seen through.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// The checkpoint's metadata, and what every GGUF file says about itself.
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
fn copy(files: &ModelFiles, tensor: &TensorInfo, out: &mut dyn Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK.min(tensor.nbytes) as usize];
    let mut at = 0;
    while at < tensor.nbytes {
        if interrupt::is_asked() {
            return Err(io::Error::other("interrupted"));
        }
        let part = &mut chunk[..CHUNK.min(tensor.nbytes - at) as usize];
        files.read(tensor, at, part).map_err(io::Error::other)?;
        out.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}
