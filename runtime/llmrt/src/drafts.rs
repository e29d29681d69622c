//! What guesses next tokens, of an [`crate::Llm`].

use crate::error::{Error, Result};
use llmrt_engine::speculation::{
    DraftLayers, DraftModel, Ngrams, attach_layers, brings_vocabulary, check_vocabulary,
};
use llmrt_engine::{DeviceRunner, EngineCore};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Device, Host};
use llmrt_tokenizer::Tokenizer;
use std::path::PathBuf;
use std::sync::Arc;

/// Speculative decoding: next tokens are guessed, and one step computes them all. No text changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Drafts {
    /// What guesses.
    pub source: DraftSource,
    /// Most guesses of a text in a step.
    pub max: usize,
    /// Probability, for the model that guesses, below which a token is no guess.
    pub min_probability: f32,
}

/// What guesses next tokens.
#[derive(Clone, PartialEq, Debug)]
pub enum DraftSource {
    /// The text itself.
    Ngrams(Ngrams),
    /// A smaller model with the same vocabulary, or layers that predict ahead for the model.
    File(PathBuf),
}

impl Drafts {
    /// Guesses of the text itself, 3 at a time.
    pub fn of_text() -> Drafts {
        Drafts { source: DraftSource::Ngrams(Ngrams::default()), max: 3, min_probability: 0.4 }
    }

    /// Guesses of a file, 3 at a time.
    pub fn of_file(path: impl Into<PathBuf>) -> Drafts {
        Drafts { source: DraftSource::File(path.into()), ..Drafts::of_text() }
    }

    /// The file of a model that guesses; layers that predict ahead become part of `files`.
    pub(crate) fn open(&self, files: &mut ModelFiles, tokenizer: &Tokenizer) -> Result<Option<ModelFiles>> {
        let DraftSource::File(path) = &self.source else { return Ok(None) };
        let of_file = |e: llmrt_engine::Error| Error::File(format!("{}: {e}", path.display()));
        let draft =
            ModelFiles::open(path, &OpenOptions::default()).map_err(|e| Error::File(e.to_string()))?;
        if brings_vocabulary(&draft) {
            let own = Tokenizer::from_metadata(&draft.model.metadata)?;
            check_vocabulary(tokenizer, &own).map_err(of_file)?;
        }
        attach_layers(files, draft).map_err(of_file)
    }

    /// Lets texts be guessed, by this model where there is one; what did not go as requested is returned.
    pub(crate) fn begin(
        &self,
        core: &mut EngineCore<DeviceRunner>,
        model: Option<ModelFiles>,
        host: &Arc<Host>,
        devices: Vec<Arc<Device>>,
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        let min_probability = self.min_probability;
        match (&self.source, model) {
            (DraftSource::Ngrams(ngrams), _) => core.speculate(Box::new(*ngrams), self.max),
            (DraftSource::File(_), None) => {
                core.speculate(Box::new(DraftLayers { min_probability }), self.max)
            }
            (DraftSource::File(_), Some(files)) => {
                let options = DraftModel::options(core.runner().options(), core.n_ctx());
                let load = LoadOptions::default();
                let mut runner = DeviceRunner::new(host, devices, files, load, options)?;
                warnings = runner.take_warnings();
                core.speculate(Box::new(DraftModel::new(runner, min_probability)?), self.max);
            }
        }
        Ok(warnings)
    }
}
