//! Files of layers that predict ahead become part of the model that they are for.

use crate::error::{Error, Result};
use llmrt_host::load::ModelFiles;
use llmrt_models::{DRAFT_PREFIX, drafts_for};

/// Whether files of this architecture have layers that predict ahead for another model.
pub fn is_layers(arch: &str) -> bool {
    drafts_for(arch).is_some()
}

/// Adds the layers of `draft` to the model that they predict ahead for; returns `draft` where it is a model of its own.
pub fn attach_layers(files: &mut ModelFiles, draft: ModelFiles) -> Result<Option<ModelFiles>> {
    let arch =
        |files: &ModelFiles| files.model.metadata.str("general.architecture").unwrap_or_default().to_string();
    match drafts_for(&arch(&draft)) {
        None => Ok(Some(draft)),
        Some(expected) if expected != arch(files) => Err(Error::OtherLayers { expected, found: arch(files) }),
        Some(_) => {
            files.attach(draft, DRAFT_PREFIX)?;
            Ok(None)
        }
    }
}
