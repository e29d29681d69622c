//! A model of the store, ready to be used: the path of its GGUF file and the texts of its layers.

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::files;
use crate::manifest::{Layer, MAX_TEXT, Manifest, media};
use crate::modelfile::{Instruction, Modelfile};
use crate::name::Name;
use crate::params::{self, Params};
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A message that a chat begins with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChatMessage {
    /// system, user or assistant.
    pub role: String,
    /// The text.
    pub content: String,
}

/// A model and its texts.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredModel {
    /// Its name.
    pub name: Name,
    /// The digest of its manifest.
    pub id: Digest,
    /// Its layers.
    pub manifest: Manifest,
    /// The blob that is the GGUF file.
    pub gguf: PathBuf,
    /// The chat template, in Jinja or in Go's template language.
    pub template: Option<String>,
    /// The system message.
    pub system: Option<String>,
    /// The parameters.
    pub params: Params,
    /// The messages that a chat begins with.
    pub messages: Vec<ChatMessage>,
    /// The licences.
    pub licenses: Vec<String>,
    /// The configuration: format, and where the model is from.
    pub config: Params,
}

impl Store {
    /// Reads a model's layers, and checks that its GGUF file is there.
    pub fn model(&self, name: &Name) -> Result<StoredModel> {
        let (manifest, bytes) = self.manifest(name)?;
        let gguf = self.gguf(name, &manifest)?;
        let texts = |media_type| -> Result<Vec<String>> {
            manifest.layers_of(media_type).map(|layer| self.text(name, layer)).collect()
        };
        let bad = |what: &str, e: serde_json::Error| Error::BadManifest {
            name: name.clone(),
            problem: format!("has {what} that cannot be parsed: {e}"),
        };
        let params = match texts(media::PARAMS)?.pop() {
            Some(text) => serde_json::from_str(&text).map_err(|e| bad("parameters", e))?,
            None => Params::new(),
        };
        let messages = match texts(media::MESSAGES)?.pop() {
            Some(text) => serde_json::from_str(&text).map_err(|e| bad("messages", e))?,
            None => Vec::new(),
        };
        let config = serde_json::from_str(&self.text(name, &manifest.config)?).unwrap_or_default();
        Ok(StoredModel {
            name: name.clone(),
            id: Digest::of(&bytes),
            gguf,
            template: texts(media::TEMPLATE)?.pop(),
            system: texts(media::SYSTEM)?.pop(),
            params,
            messages,
            licenses: texts(media::LICENSE)?,
            config,
            manifest,
        })
    }

    /// The path of the one layer of weights.
    fn gguf(&self, name: &Name, manifest: &Manifest) -> Result<PathBuf> {
        let unsupported = |problem: String| Error::Unsupported { name: name.clone(), problem };
        if manifest.layers_of(media::ADAPTER).next().is_some() {
            return Err(unsupported("has an adapter, which is not supported".into()));
        }
        let layers: Vec<&Layer> = manifest.layers_of(media::MODEL).collect();
        match layers[..] {
            [layer] => self.blob(name, layer),
            [] => Err(unsupported(format!("has no layer {}: it is no GGUF model", media::MODEL))),
            _ => Err(unsupported(format!("has {} GGUF files: expected one", layers.len()))),
        }
    }

    /// A blob that is there and has its size.
    pub(crate) fn blob(&self, name: &Name, layer: &Layer) -> Result<PathBuf> {
        let bad = |problem: String| Error::BadBlob { name: name.clone(), digest: layer.digest, problem };
        match self.blobs.size(&layer.digest) {
            None => Err(bad("is missing".into())),
            Some(n) if n != layer.size => {
                Err(bad(format!("has {n} bytes, the manifest states {}", layer.size)))
            }
            Some(_) => Ok(self.blobs.path(&layer.digest)),
        }
    }

    pub(crate) fn text(&self, name: &Name, layer: &Layer) -> Result<String> {
        let path = self.blob(name, layer)?;
        let bytes = files::read_small(&path, MAX_TEXT)?.unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| Error::BadBlob {
            name: name.clone(),
            digest: layer.digest,
            problem: format!("of the type {} is no UTF-8 text", layer.media_type.escape_debug()),
        })
    }
}

impl StoredModel {
    /// Whether the template is in Go's language, as those of Ollama's registry are, and not Jinja: whether an action begins
    /// with a field, a variable or a word of that language.
    pub fn has_go_template(&self) -> bool {
        const WORDS: [&str; 8] = ["if", "else", "end", "range", "with", "define", "template", "block"];
        let template = self.template.as_deref().unwrap_or_default();
        template.split("{{").skip(1).any(|action| {
            let action = action.trim_start_matches('-').trim_start();
            let word: String =
                action.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            action.starts_with(['.', '$']) || WORDS.contains(&word.as_str())
        })
    }

    /// A Modelfile that makes this model again, from the blob.
    pub fn modelfile(&self) -> Modelfile {
        let mut instructions = vec![Instruction::From(self.gguf.display().to_string())];
        instructions.extend(self.template.clone().map(Instruction::Template));
        instructions.extend(self.system.clone().map(Instruction::System));
        let params = params::lines(&self.params).into_iter();
        instructions.extend(params.map(|(name, text)| Instruction::Parameter(name, text)));
        instructions.extend(self.messages.iter().cloned().map(Instruction::Message));
        instructions.extend(self.licenses.iter().cloned().map(Instruction::License));
        if let Some(version) = self.config.get("requires").and_then(|version| version.as_str()) {
            instructions.push(Instruction::Requires(version.into()));
        }
        Modelfile { instructions }
    }
}
