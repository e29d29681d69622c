//! A model's files, opened and understood: GGUF and PowerInfer, whole or split, and llama2.c checkpoints, all as one
//! table of metadata and tensors.

use std::path::{Path, PathBuf};

use llmrt_gguf::checkpoint::{self, Checkpoint, TokenizerBin};
use llmrt_gguf::{FileKind, Gguf, Model, SplitInfo, SplitName, TensorInfo, sniff};

use super::dequantised::Dequantised;
use super::mapping::Mapping;
use super::read::{OpenFile, buffer};
use super::{Error, Result};

/// The user's options for opening the files.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// `--override-kv`: KEY=TYPE:VAL, applied in order.
    pub overrides: Vec<String>,
    /// `--tokenizer`: the tokenizer.bin of a llama2.c checkpoint, if it is not beside it.
    pub tokenizer: Option<PathBuf>,
}

/// A model that can be loaded.
#[derive(Debug)]
pub struct ModelFiles {
    /// Metadata and tensors. `TensorInfo::file` and `offset` locate the bytes in [`ModelFiles::sources`].
    pub model: Model,
    /// What the first file is.
    pub kind: FileKind,
    /// Where tensors' bytes are.
    pub sources: Vec<Source>,
    /// Keys of the overrides that the file does not have.
    pub new_keys: Vec<String>,
}

/// One place with bytes of tensors.
#[derive(Debug)]
pub enum Source {
    /// A file as it is.
    File(OpenFile),
    /// f32, dequantised from the int8 groups of a checkpoint.
    Dequantised(Dequantised),
}

impl ModelFiles {
    /// Opens a model by the path of its file, or of any of its parts.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<ModelFiles> {
        ModelFiles::of_file(OpenFile::open(path)?, options)
    }

    /// Opens a model that is part of this program; `name` is what messages call it.
    pub fn from_bytes(name: &str, bytes: &[u8], options: &OpenOptions) -> Result<ModelFiles> {
        ModelFiles::of_file(OpenFile::in_memory(name, bytes)?, options)
    }

    fn of_file(file: OpenFile, options: &OpenOptions) -> Result<ModelFiles> {
        let path = file.path.clone();
        let kind = sniff(&file.prefix(HEADER_BYTES)?);
        let mut files = match kind {
            FileKind::Gguf | FileKind::PowerInfer => {
                if options.tokenizer.is_some() {
                    return Err(Error::NeedlessTokenizer { path });
                }
                open_gguf(file, kind)
            }
            FileKind::Llama2cV0Maybe | FileKind::Llama2cV1 | FileKind::Llama2cV2 => {
                open_checkpoint(file, kind, options)
            }
            FileKind::Unknown => {
                let found = file.prefix(16)?.escape_ascii().to_string();
                Err(Error::NotAModel { path, found })
            }
        }?;
        for given in &options.overrides {
            let key = given.split('=').next().unwrap_or_default();
            let is_new = !files.model.metadata.contains(key);
            files.model.metadata.apply_override(given).map_err(Error::Override)?;
            files.new_keys.extend(is_new.then(|| key.to_string()));
        }
        Ok(files)
    }

    /// Adds the tensors of another file, with `prefix` in front of their names, and the keys of its architecture, as of layers
    /// that predict ahead for this model.
    pub fn attach(&mut self, other: ModelFiles, prefix: &str) -> Result<()> {
        let path = other.files().next().map(|file| file.path.clone()).unwrap_or_default();
        let first_file = self.sources.len();
        self.sources.extend(other.sources);
        let attached = self.model.attach(other.model, prefix, first_file);
        attached.map_err(|source| Error::Invalid { path, source })
    }

    /// Tokens of the longest text the model was trained on.
    pub fn n_ctx_train(&self) -> Option<usize> {
        let metadata = &self.model.metadata;
        let arch = metadata.str("general.architecture")?;
        metadata.usize(&format!("{arch}.context_length"))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.model.tensor(name).ok_or_else(|| Error::MissingTensor { tensor: name.into() })
    }

    /// Fills `dst` with bytes of a tensor, from byte `off` of it on; `dst` ends within the tensor.
    pub fn read(&self, tensor: &TensorInfo, off: u64, dst: &mut [u8]) -> Result<()> {
        match (self.sources.get(tensor.file), self.files().next()) {
            (Some(Source::File(file)), _) => file.read_exact_at(tensor.offset + off, dst),
            (Some(Source::Dequantised(d)), Some(checkpoint)) => d.read(checkpoint, tensor.offset + off, dst),
            _ => Err(Error::MissingTensor { tensor: tensor.name.clone() }),
        }
    }

    /// All bytes of a tensor.
    pub fn bytes(&self, tensor: &TensorInfo) -> Result<Vec<u8>> {
        let mut bytes = buffer(tensor.nbytes, || format!("tensor `{}`", tensor.name))?;
        self.read(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files().map(|file| file.len).sum()
    }

    /// An error if a file has lost pages that are mapped; `maps` has the index of each one's file.
    pub(super) fn check_maps<'a>(&self, mut maps: impl Iterator<Item = (usize, &'a Mapping)>) -> Result<()> {
        maps.try_for_each(|(source, mapping)| match self.sources.get(source) {
            Some(Source::File(file)) => mapping.check(file),
            _ => Ok(()),
        })
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &OpenFile> {
        self.sources.iter().filter_map(|source| match source {
            Source::File(file) => Some(file),
            Source::Dequantised(_) => None,
        })
    }
}

/// Enough for `sniff`, and for all of a checkpoint's header.
const HEADER_BYTES: u64 = 256;

fn open_gguf(file: OpenFile, kind: FileKind) -> Result<ModelFiles> {
    let path = file.path.clone();
    let tables = read_tables(&file)?;
    let split =
        SplitInfo::of(&tables.metadata).map_err(|source| Error::Invalid { path: path.clone(), source })?;
    let parts = match split.filter(|split| split.count > 1) {
        None => vec![(file, tables)],
        Some(split) => open_parts(file, tables, split)?,
    };
    let (files, tables): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let model = llmrt_gguf::merge(tables).map_err(|source| Error::Invalid { path, source })?;
    Ok(ModelFiles {
        model,
        kind,
        sources: files.into_iter().map(Source::File).collect(),
        new_keys: Vec::new(),
    })
}

/// All parts in order, the one that is already open among them.
fn open_parts(file: OpenFile, tables: Gguf, split: SplitInfo) -> Result<Vec<(OpenFile, Gguf)>> {
    let wrong_name =
        Error::SplitName { path: file.path.clone(), number: split.no.saturating_add(1), count: split.count };
    let name = file.path.file_name().and_then(|name| SplitName::parse(name.to_str()?));
    let Some(name) = name.filter(|name| (name.no, name.count) == (split.no, split.count)) else {
        return Err(wrong_name);
    };

    let mut given = Some((file, tables));
    let mut parts = Vec::new();
    for (no, sibling) in name.all().iter().enumerate() {
        if let Some(part) = given.take_if(|_| no == name.no as usize) {
            parts.push(part);
            continue;
        }
        let path = match parts.first().or(given.as_ref()) {
            Some((open, _)) => open.path.with_file_name(sibling),
            None => PathBuf::from(sibling),
        };
        let part = OpenFile::open(&path).map_err(|error| match error {
            Error::Open { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                Error::MissingPart { path, number: no as u32 + 1, count: name.count, source }
            }
            other => other,
        })?;
        let tables = read_tables(&part)?;
        check_part(&part, &tables, no as u32, name.count)?;
        parts.push((part, tables));
    }
    Ok(parts)
}

/// An error that names the file if it is another part than its name has, or none.
fn check_part(file: &OpenFile, tables: &Gguf, no: u32, count: u32) -> Result<()> {
    let path = file.path.clone();
    let split = SplitInfo::of(&tables.metadata);
    let found = match split.map_err(|source| Error::Invalid { path: path.clone(), source })? {
        Some(split) if (split.no, split.count) == (no, count) => return Ok(()),
        Some(split) => format!("part {} of {}", u64::from(split.no) + 1, split.count),
        None => "no part of a split model".into(),
    };
    Err(Error::WrongPart { path, number: no + 1, count, found })
}

/// Reads as much of the file as its tables need.
fn read_tables(file: &OpenFile) -> Result<Gguf> {
    let mut n = 1 << 20;
    loop {
        let prefix = file.prefix(n)?;
        match Gguf::parse(&prefix, file.len) {
            Err(llmrt_gguf::Error::NeedMore { at_least }) if n < file.len => n = at_least.max(2 * n),
            result => return result.map_err(|source| Error::Invalid { path: file.path.clone(), source }),
        }
    }
}

fn open_checkpoint(file: OpenFile, kind: FileKind, options: &OpenOptions) -> Result<ModelFiles> {
    let path = file.path.clone();
    let invalid = |source| Error::Invalid { path: path.clone(), source };
    let parsed = Checkpoint::parse(&file.prefix(HEADER_BYTES)?, file.len);
    let checkpoint = parsed.map_err(|source| match kind {
        FileKind::Llama2cV0Maybe => Error::NotACheckpoint { path: path.clone(), source },
        _ => invalid(source),
    })?;

    let (tokenizer_path, tokenizer) = open_tokenizer(&file.path, options)?;
    let metadata = checkpoint::to_metadata(&checkpoint.config, tokenizer.as_ref())
        .map_err(|source| Error::Invalid { path: tokenizer_path, source })?;

    let (dequantised, tensors) = Dequantised::plan(&checkpoint.tensors);
    let model = Model::new(metadata, tensors).map_err(invalid)?;
    let mut sources = vec![Source::File(file)];
    sources.extend(dequantised.map(Source::Dequantised));
    Ok(ModelFiles { model, kind, sources, new_keys: Vec::new() })
}

/// The vocabulary that the user names, or tokenizer.bin beside the checkpoint if it is there.
fn open_tokenizer(checkpoint: &Path, options: &OpenOptions) -> Result<(PathBuf, Option<TokenizerBin>)> {
    let beside = checkpoint.with_file_name("tokenizer.bin");
    let path = options.tokenizer.clone().unwrap_or(beside);
    if options.tokenizer.is_none() && !path.exists() {
        return Ok((path, None));
    }
    let file = OpenFile::open(&path)?;
    let parsed = TokenizerBin::parse(&file.prefix(file.len)?);
    let tokenizer = parsed.map_err(|source| Error::Invalid { path: path.clone(), source })?;
    Ok((path, Some(tokenizer)))
}

#[cfg(test)]
mod tests;
