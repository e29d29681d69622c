//! What of a model's file makes texts into tokens.

use crate::error::{Error, Result};
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_tokenizer::{ChatTemplate, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// The vocabulary of a model and its chat template, without its weights.
///
/// ```
/// let tables = llmrt::TextTables::open("../../cli/assets/stories.gguf")?;
/// assert_eq!(tables.tokenizer.n_tokens(), 1024);
/// # Ok::<(), llmrt::Error>(())
/// ```
#[derive(Clone)]
pub struct TextTables {
    /// Text and ids.
    pub tokenizer: Arc<Tokenizer>,
    /// How messages become a prompt; `None`: the model has no chat.
    pub template: Option<Arc<ChatTemplate>>,
}

impl TextTables {
    /// Those of a GGUF file, any part of a split model.
    pub fn open(path: impl AsRef<Path>) -> Result<TextTables> {
        let files = ModelFiles::open(path.as_ref(), &OpenOptions::default());
        TextTables::read(&files.map_err(|e| Error::File(e.to_string()))?, None)
    }

    /// Those of a file in memory; `name` stands in messages.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<TextTables> {
        let files = ModelFiles::from_bytes(name, bytes, &OpenOptions::default());
        TextTables::read(&files.map_err(|e| Error::File(e.to_string()))?, None)
    }

    /// Those of an open file, with a template in the place of its own.
    pub(crate) fn read(files: &ModelFiles, template: Option<&str>) -> Result<TextTables> {
        let metadata = &files.model.metadata;
        let template = match template {
            Some(source) => Some(ChatTemplate::new(source)?),
            None => ChatTemplate::from_metadata(metadata)?,
        };
        let tokenizer = Arc::new(Tokenizer::from_metadata(metadata)?);
        Ok(TextTables { tokenizer, template: template.map(Arc::new) })
    }
}
