//! Manifests: which blobs a model is made of.

use crate::digest::Digest;
use serde::{Deserialize, Serialize};

/// Media types, as Ollama and its registry name them.
pub mod media {
    /// A manifest.
    pub const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// The configuration of a manifest.
    pub const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
    /// Weights: a GGUF file.
    pub const MODEL: &str = "application/vnd.ollama.image.model";
    /// A chat template.
    pub const TEMPLATE: &str = "application/vnd.ollama.image.template";
    /// A system message.
    pub const SYSTEM: &str = "application/vnd.ollama.image.system";
    /// Parameters, a JSON object.
    pub const PARAMS: &str = "application/vnd.ollama.image.params";
    /// A licence.
    pub const LICENSE: &str = "application/vnd.ollama.image.license";
    /// Messages that a chat begins with, a JSON array.
    pub const MESSAGES: &str = "application/vnd.ollama.image.messages";
    /// An adapter of weights: not supported.
    pub const ADAPTER: &str = "application/vnd.ollama.image.adapter";
    /// A projector of images: not supported.
    pub const PROJECTOR: &str = "application/vnd.ollama.image.projector";
}

/// Most bytes of a manifest, and of a layer that is text.
pub(crate) const MAX_TEXT: u64 = 4 << 20;

/// Most layers of a manifest.
const MAX_LAYERS: usize = 256;

/// A model: its configuration and its layers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// [`media::MANIFEST`].
    #[serde(default)]
    pub media_type: String,
    /// A blob of JSON.
    pub config: Layer,
    /// The parts, each a blob.
    pub layers: Vec<Layer>,
}

/// A blob and what it is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer {
    /// One of [`media`].
    pub media_type: String,
    /// The blob.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
}

impl Manifest {
    /// A manifest of these parts.
    pub fn new(config: Layer, layers: Vec<Layer>) -> Manifest {
        Manifest { schema_version: 2, media_type: media::MANIFEST.into(), config, layers }
    }

    /// Parses and checks a manifest; the error is what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|e| format!("cannot be parsed: {e}"))?;
        if manifest.schema_version != 2 {
            return Err(format!("has version {}: expected 2", manifest.schema_version));
        }
        if manifest.layers.len() > MAX_LAYERS {
            return Err(format!("has {} layers: expected at most {MAX_LAYERS}", manifest.layers.len()));
        }
        let total = manifest.blobs().try_fold(0u64, |sum, layer| sum.checked_add(layer.size));
        total.filter(|&n| n < 1 << 60).ok_or("states sizes that no file has")?;
        Ok(manifest)
    }

    /// Its text in a store and a registry.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The layers, then the configuration.
    pub fn blobs(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().chain([&self.config])
    }

    /// Bytes of all blobs.
    pub fn size(&self) -> u64 {
        self.blobs().map(|layer| layer.size).sum()
    }

    /// The layers of a media type.
    pub fn layers_of(&self, media_type: &str) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(move |layer| layer.media_type == media_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let layer =
            |media_type: &str, size| Layer { media_type: media_type.into(), digest: Digest::of(b"x"), size };
        Manifest::new(layer(media::CONFIG, 1), vec![layer(media::MODEL, 10), layer(media::SYSTEM, 5)])
    }

    #[test]
    fn a_manifest_is_read_back_and_has_the_registrys_keys() {
        let json = manifest().to_json();
        assert_eq!(Manifest::parse(&json).unwrap(), manifest());
        let text = String::from_utf8(json).unwrap();
        let digest = Digest::of(b"x");
        let config = format!(r#"{{"mediaType":"{}","digest":"{digest}","size":1}}"#, media::CONFIG);
        let head = format!(r#"{{"schemaVersion":2,"mediaType":"{}","config":{config},"#, media::MANIFEST);
        assert!(text.starts_with(&head), "{text}");
        assert_eq!(manifest().size(), 16);
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_the_reason() {
        let check = |change: fn(&mut Manifest), expected: &str| {
            let mut manifest = manifest();
            change(&mut manifest);
            let problem = Manifest::parse(&manifest.to_json()).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        };
        check(|m| m.schema_version = 1, "has version 1: expected 2");
        check(|m| m.config.size = u64::MAX, "sizes that no file has");
        check(|m| m.layers = vec![m.config.clone(); 300], "300 layers");
        assert!(Manifest::parse(b"<html>").unwrap_err().contains("cannot be parsed"));
        let path =
            r#"{"schemaVersion":2,"config":{"mediaType":"","digest":"sha256:../x","size":1},"layers":[]}"#;
        assert!(Manifest::parse(path.as_bytes()).unwrap_err().contains("is no digest"));
    }
}
