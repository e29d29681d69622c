//! Files of layers that predict ahead become part of the model that they are for.

use crate::error::{Error, Result};
use llmrt_host::load::ModelFiles;
use llmrt_models::{DRAFT_PREFIX, drafts_for};

/// Whether a file of guesses has a vocabulary that must be the model's: files of layers that predict ahead may have none.
pub fn brings_vocabulary(draft: &ModelFiles) -> bool {
    drafts_for(arch(draft)).is_none() || draft.model.metadata.contains("tokenizer.ggml.tokens")
}

/// Adds the layers of `draft` to the model that they predict ahead for; returns `draft` where it is a model of its own.
pub fn attach_layers(files: &mut ModelFiles, draft: ModelFiles) -> Result<Option<ModelFiles>> {
    match drafts_for(arch(&draft)) {
        None => Ok(Some(draft)),
        Some(expected) if expected != arch(files) => {
            Err(Error::OtherLayers { expected, found: arch(files).to_string() })
        }
        Some(_) => {
            files.attach(draft, DRAFT_PREFIX)?;
            Ok(None)
        }
    }
}

fn arch(files: &ModelFiles) -> &str {
    files.model.metadata.str("general.architecture").unwrap_or_default()
}
