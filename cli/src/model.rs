//! The model a command works with: a file, or the one that is part of this program.

use crate::args::{LoadModeArg, ModelArgs, OpenArgs};
use crate::error::{Error, Exit, Result};
use crate::speculation::DraftFile;
use crate::store;
use llmrt_gguf::checkpoint::TokenizerBin;
use llmrt_gguf::{FileKind, Metadata};
use llmrt_host::knobs;
use llmrt_host::load::{LoadMode, ModelFiles, OpenOptions, SealCache};
use llmrt_models::Model;
use llmrt_tokenizer::{ChatTemplate, Tokenizer};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tiny story teller, trained by `tools/train`.
pub static EMBEDDED: &[u8] = include_bytes!("../assets/stories.gguf");

/// What messages call it.
const EMBEDDED_NAME: &str = "(embedded model)";

/// The key of the vocabulary.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// Bytes of each tensor that a model's checksum covers.
const CHECKED_BYTES: u64 = 4096;

/// Which model a file was written with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its name in messages.
    pub name: String,
    /// SHA-256 in hexadecimal digits, of [`OpenModel::identity`].
    pub checksum: String,
}

/// A model whose tables are read.
pub struct OpenModel {
    /// Its name in messages.
    pub name: String,
    /// Tables and bytes.
    pub files: Arc<ModelFiles>,
    /// tokenizer.bin, if it is a llama2.c checkpoint.
    tokenizer_bin: Option<PathBuf>,
    /// The model that guesses its next tokens, if one does.
    pub draft: Option<DraftFile>,
}

impl OpenModel {
    /// Opens a model file, a model of the store if no file has that name, or the embedded model.
    pub fn open(path: Option<&Path>, options: &OpenOptions) -> Result<OpenModel> {
        let Some(path) = path else {
            let files = ModelFiles::from_bytes(EMBEDDED_NAME, EMBEDDED, options)?;
            note_new_keys(&files);
            let (name, files) = (EMBEDDED_NAME.into(), Arc::new(files));
            return Ok(OpenModel { name, files, tokenizer_bin: None, draft: None });
        };
        let stored = store::find(path)?;
        let name = path.display().to_string();
        let opened = ModelFiles::open(stored.as_ref().map_or(path, |model| &model.gguf), options);
        let mut files = opened.map_err(|e| Error::from(e).of_model(&name))?;
        note_new_keys(&files);
        if is_checkpoint(files.kind) {
            end_at_bos(&mut files.model.metadata);
        }
        let beside = || path.with_file_name("tokenizer.bin");
        let tokenizer_bin =
            is_checkpoint(files.kind).then(|| options.tokenizer.clone().unwrap_or_else(beside));
        Ok(OpenModel { name, files: Arc::new(files), tokenizer_bin, draft: None })
    }

    /// The files, to change them while nothing else has them.
    pub fn files_mut(&mut self) -> Result<&mut ModelFiles> {
        let OpenModel { name, files, .. } = self;
        Arc::get_mut(files).ok_or_else(|| in_use(name))
    }

    /// The files alone.
    pub fn into_files(self) -> Result<ModelFiles> {
        Arc::into_inner(self.files).ok_or_else(|| in_use(&self.name))
    }

    /// Whether it is the model that is part of this program.
    pub fn is_embedded(&self) -> bool {
        self.name == EMBEDDED_NAME
    }

    /// The graphs of its architecture, by its tables alone.
    pub fn build(&self) -> Result<Model> {
        let model = &self.files.model;
        let find = |name: &str| model.tensor(name).map(|t| (t.dtype, t.ne));
        Model::new(&model.metadata, find).map_err(|e| self.error(e))
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.files.model.metadata
    }

    /// Tokens of the longest text the model was trained on.
    pub fn n_ctx_train(&self) -> Option<usize> {
        self.files.n_ctx_train()
    }

    /// Whether the file is a llama2.c checkpoint.
    pub fn is_checkpoint(&self) -> bool {
        is_checkpoint(self.files.kind)
    }

    /// The tokenizer that the file names. A checkpoint's is that of the GGUF file that `convert` makes of it.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        if let Some(path) = self.tokenizer_bin.as_ref().filter(|_| !self.metadata().contains(TOKENS)) {
            return Err(self.no_tokenizer_bin(path));
        }
        let tokenizer = Tokenizer::from_metadata(self.metadata()).map_err(|e| match self.build() {
            // What the file is comes before what it lacks.
            Err(of_model) if !self.metadata().contains(TOKENS) => of_model,
            _ => self.error(e),
        })?;
        for warning in tokenizer.warnings() {
            crate::output::note(format_args!("{}: {warning}", self.name));
        }
        Ok(tokenizer)
    }

    /// Frees the vocabulary of the tables, which is tens of megabytes in many small pieces: for after the tokenizer was
    /// made. Its length stays.
    pub fn drop_vocabulary(&mut self) {
        let Ok(files) = self.files_mut() else { return };
        let metadata = &mut files.model.metadata;
        let n_tokens = metadata.strings(TOKENS).map_or(0, <[String]>::len);
        if let (1.., Some(arch)) = (n_tokens, metadata.str("general.architecture").map(String::from)) {
            metadata.set(format!("{arch}.vocab_size"), n_tokens as u64);
            for key in ["tokens", "scores", "token_type", "merges"] {
                metadata.remove(&format!("tokenizer.ggml.{key}"));
            }
        }
        llmrt_host::heap::trim();
    }

    /// llama2.c's tokenizer with the vocabulary of a checkpoint, or of a GGUF file that was made from one.
    pub fn llama2c_tokenizer(&self) -> Result<Tokenizer> {
        let pieces = match &self.tokenizer_bin {
            Some(path) => self.pieces_of_file(path)?,
            None => self.pieces_of_metadata()?,
        };
        Tokenizer::llama2c(pieces).map_err(|e| self.error(e))
    }

    /// tokenizer.bin of a checkpoint, whether it is there or not.
    pub fn tokenizer_bin(&self) -> Option<&Path> {
        self.tokenizer_bin.as_deref()
    }

    /// The chat template, if there is one that can be used.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        ChatTemplate::from_metadata(self.metadata()).map_err(|e| self.error(e))
    }

    /// The model's name and checksum.
    pub fn identity(&self) -> Result<Identity> {
        Ok(Identity { name: self.name.clone(), checksum: self.checksum()? })
    }

    /// SHA-256 over what a model computes with: metadata except the vocabulary, and of every tensor the name, type,
    /// dims and the bytes in its middle. To read all bytes would take as long as to load the model.
    fn checksum(&self) -> Result<String> {
        let mut hash = Sha256::new();
        let is_number = |key: &str| !key.starts_with("tokenizer.") && !key.starts_with("general.name");
        let mut metadata: Vec<_> = self.metadata().iter().filter(|(key, _)| is_number(key)).collect();
        metadata.sort_by_key(|(key, _)| *key);
        for (key, value) in metadata {
            hash.update(format!("{key}={value:?}\n"));
        }
        for tensor in &self.files.model.tensors {
            hash.update(format!("{} {} {:?}\n", tensor.name, tensor.dtype, tensor.ne));
            let n = tensor.nbytes.min(CHECKED_BYTES);
            let mut bytes = vec![0; n as usize];
            self.files.read(tensor, (tensor.nbytes - n) / 2, &mut bytes)?;
            hash.update(&bytes);
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// An error about this model.
    pub fn error(&self, problem: impl std::fmt::Display) -> Error {
        Error::file(Path::new(&self.name), problem)
    }

    fn pieces_of_file(&self, path: &Path) -> Result<Vec<(f32, Vec<u8>)>> {
        if !path.exists() {
            return Err(self.no_tokenizer_bin(path));
        }
        let bytes = std::fs::read(path).map_err(|e| Error::unreadable(path, &e))?;
        let mut tokens = TokenizerBin::parse(&bytes).map_err(|e| Error::file(path, e))?.tokens;
        if let Some(n_vocab) = self.metadata().usize("llama.vocab_size") {
            tokens.truncate(n_vocab);
        }
        Ok(tokens)
    }

    fn no_tokenizer_bin(&self, path: &Path) -> Error {
        let path = path.display();
        self.error(format_args!(
            "there is no {path}: give the checkpoint's tokenizer.bin with --tokenizer FILE"
        ))
    }

    /// The way back from SentencePiece's spelling to that of tokenizer.bin.
    fn pieces_of_metadata(&self) -> Result<Vec<(f32, Vec<u8>)>> {
        let metadata = self.metadata();
        let tokens = metadata.require_strings(TOKENS).map_err(|e| self.error(e))?;
        let scores = metadata.f32s("tokenizer.ggml.scores").filter(|scores| scores.len() == tokens.len());
        let (Some("llama"), Some(scores)) = (metadata.str("tokenizer.ggml.model"), scores) else {
            return Err(Error::usage(format!(
                "{}: --sampler llama2c needs a vocabulary of type `llama` with scores; leave the flag out",
                self.name
            )));
        };
        let bytes = |(id, text): (usize, &String)| match id {
            1 => b"\n<s>\n".to_vec(),
            2 => b"\n</s>\n".to_vec(),
            _ => text.replace('\u{2581}', " ").into_bytes(),
        };
        Ok(scores.into_iter().zip(tokens.iter().enumerate().map(bytes)).collect())
    }
}

/// Warns of keys of `--override-kv` that the file lacks: they may be misspelt.
fn note_new_keys(files: &ModelFiles) {
    for key in &files.new_keys {
        crate::output::note(format_args!(
            "warning: --override-kv {key}: the file has no such key; it is set all the same (`llmrt inspect` lists keys)"
        ));
    }
}

/// The flags of opening.
pub fn open_options(args: &ModelArgs) -> OpenOptions {
    table_options(&args.open)
}

/// The flags of opening, where nothing is loaded.
pub fn table_options(args: &OpenArgs) -> OpenOptions {
    OpenOptions { overrides: args.overrides.clone(), tokenizer: args.tokenizer.clone() }
}

/// The flags of getting weights into memory.
pub fn load_mode(args: &ModelArgs) -> LoadMode {
    let mode = match args.load_mode {
        LoadModeArg::Auto | LoadModeArg::Mmap => LoadMode::Mmap,
        LoadModeArg::MmapMlock => LoadMode::MmapMlock,
        LoadModeArg::None => LoadMode::Read,
        LoadModeArg::Mlock => LoadMode::ReadMlock,
    };
    match (mode.maps() && !args.no_mmap, mode.locks() || args.mlock) {
        (true, false) => LoadMode::Mmap,
        (true, true) => LoadMode::MmapMlock,
        (false, false) => LoadMode::Read,
        (false, true) => LoadMode::ReadMlock,
    }
}

/// Where sealed weights are kept between runs.
pub fn seal_cache(args: &ModelArgs) -> Option<SealCache> {
    let folder = seal_cache_folder(args.seal_cache.as_deref())?;
    Some(SealCache::new(&folder, args.seal_cache_limit.unwrap_or(SealCache::LIMIT)))
}

/// The folder that the flag names, or the variable.
pub fn seal_cache_folder(flag: Option<&Path>) -> Option<PathBuf> {
    flag.map(PathBuf::from).or_else(|| knobs::SEAL_CACHE.text().map(PathBuf::from))
}

/// Models of llama2.c end a text with the token that begins the next one.
fn end_at_bos(metadata: &mut Metadata) {
    const KEY: &str = "tokenizer.ggml.eot_token_id";
    let bos = metadata.get("tokenizer.ggml.bos_token_id").cloned();
    if let Some(bos) = bos.filter(|_| !metadata.contains(KEY)) {
        metadata.set(KEY, bos);
    }
}

fn in_use(name: &str) -> Error {
    Error::new(Exit::Failure, format!("{name}: its files are in use, so they stay as they are"))
}

fn is_checkpoint(kind: FileKind) -> bool {
    matches!(kind, FileKind::Llama2cV0Maybe | FileKind::Llama2cV1 | FileKind::Llama2cV2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_loading_add_up() {
        let mode = |load_mode, mlock, no_mmap| {
            load_mode_name(ModelArgs { load_mode, mlock, no_mmap, ..ModelArgs::default() })
        };
        assert_eq!(mode(LoadModeArg::Auto, false, false), "mmap");
        assert_eq!(mode(LoadModeArg::Auto, true, false), "mmap+mlock");
        assert_eq!(mode(LoadModeArg::MmapMlock, false, true), "mlock");
        assert_eq!(mode(LoadModeArg::None, false, false), "none");
        assert_eq!(mode(LoadModeArg::Mlock, false, false), "mlock");
    }

    fn load_mode_name(args: ModelArgs) -> String {
        load_mode(&args).to_string()
    }
}
