//! Makes a model of a Modelfile.

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::{Layer, Manifest, media};
use crate::modelfile::{Instruction, Modelfile};
use crate::name::Name;
use crate::params::Params;
use crate::store::Store;
use crate::watch::{Event, Watch};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How a model is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// The folder that relative paths of `FROM` begin in: the Modelfile's.
    pub folder: PathBuf,
    /// Whether a GGUF file becomes a hard link where that is possible: no copy, but a later change of the file in place
    /// changes the model.
    pub link: bool,
}

impl Store {
    /// Makes a model; what had the name before is replaced. The layers of a model that `FROM` names stay, but for those that
    /// the Modelfile sets.
    pub fn create(
        &self,
        name: &Name,
        modelfile: &Modelfile,
        options: &CreateOptions,
        watch: &mut Watch<'_>,
    ) -> Result<()> {
        let _adding = self.begin_adding()?;
        let (mut layers, mut config) = self.base(modelfile.from(), options, watch)?;
        self.add_texts(modelfile, &mut layers)?;
        self.add_params(name, modelfile, &mut layers)?;
        let requires = modelfile.instructions.iter().rev().find_map(|i| match i {
            Instruction::Requires(version) => Some(version),
            _ => None,
        });
        if let Some(version) = requires {
            config.insert("requires".into(), json!(version));
        }
        config.insert("rootfs".into(), rootfs(&layers));
        let config = self.blobs.put(media::CONFIG, &text(&config))?;
        watch.show(Event::Finish);
        self.put_manifest(name, &Manifest::new(config, layers).to_json())
    }

    /// The layers and the configuration to begin with.
    fn base(
        &self,
        from: &str,
        options: &CreateOptions,
        watch: &mut Watch<'_>,
    ) -> Result<(Vec<Layer>, Params)> {
        let path = options.folder.join(from);
        let stored = from.parse::<Name>().ok().filter(|name| self.has(name));
        if path.is_file() || (stored.is_none() && path.exists()) {
            check_gguf(&path)?;
            let layer = self.blobs.import(media::MODEL, &path, options.link, watch)?;
            return Ok((vec![layer], config()));
        }
        let name = stored.ok_or_else(|| Error::NoBase { from: from.into() })?;
        let base = self.model(&name)?;
        Ok((base.manifest.layers, base.config))
    }

    /// The layers of texts: a template and a system message replace the base's, messages too, licences are added.
    fn add_texts(&self, modelfile: &Modelfile, layers: &mut Vec<Layer>) -> Result<()> {
        let mut messages = Vec::new();
        for instruction in &modelfile.instructions {
            match instruction {
                Instruction::Template(text) => self.replace(layers, media::TEMPLATE, text.as_bytes())?,
                Instruction::System(text) => self.replace(layers, media::SYSTEM, text.as_bytes())?,
                Instruction::License(text) => layers.push(self.blobs.put(media::LICENSE, text.as_bytes())?),
                Instruction::Message(message) => messages.push(message),
                Instruction::From(_) | Instruction::Parameter(..) | Instruction::Requires(_) => {}
            }
        }
        match messages.is_empty() {
            true => Ok(()),
            false => self.replace(layers, media::MESSAGES, &text(&messages)),
        }
    }

    /// The layer of parameters: those of the base, but for those that the Modelfile sets.
    fn add_params(&self, name: &Name, modelfile: &Modelfile, layers: &mut Vec<Layer>) -> Result<()> {
        let given = modelfile.params();
        if given.is_empty() {
            return Ok(());
        }
        let mut params = match layers.iter().find(|layer| layer.media_type == media::PARAMS) {
            Some(layer) => serde_json::from_str(&self.text(name, layer)?).unwrap_or_default(),
            None => Params::new(),
        };
        params.extend(given);
        self.replace(layers, media::PARAMS, &text(&params))
    }

    /// Puts a layer in the place of those of its type; empty bytes leave none.
    fn replace(&self, layers: &mut Vec<Layer>, media_type: &str, bytes: &[u8]) -> Result<()> {
        layers.retain(|layer| layer.media_type != media_type);
        if !bytes.is_empty() {
            layers.push(self.blobs.put(media_type, bytes)?);
        }
        Ok(())
    }
}

fn text(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// The configuration of a new model.
pub(crate) fn config() -> Params {
    let mut config = Params::new();
    for (key, value) in [("model_format", "gguf"), ("architecture", "amd64"), ("os", "linux")] {
        config.insert(key.into(), value.into());
    }
    config
}

/// The part of the configuration that lists the layers.
pub(crate) fn rootfs(layers: &[Layer]) -> Value {
    let digests: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
    json!({ "type": "layers", "diff_ids": digests })
}

/// Whether a file is a whole GGUF model.
fn check_gguf(path: &Path) -> Result<()> {
    let bad = |problem| Err(Error::NotGguf { path: path.into(), problem });
    if path.is_dir() {
        return bad("is a folder");
    }
    let mut magic = [0; 4];
    let n = File::open(path).and_then(|mut file| file.read(&mut magic)).map_err(Error::io(path, "read"))?;
    if n < 4 || &magic != b"GGUF" {
        return bad("is no GGUF file");
    }
    match is_split(&path.to_string_lossy()) {
        true => bad("is a part of a split model: join the parts first"),
        false => Ok(()),
    }
}

/// Whether a file's name ends in `-00001-of-00003.gguf`.
pub(crate) fn is_split(name: &str) -> bool {
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    let parts = name.strip_suffix(".gguf").and_then(|stem| stem.rsplit_once("-of-"));
    parts.is_some_and(|(stem, n)| is_number(n) && stem.rsplit_once('-').is_some_and(|(_, i)| is_number(i)))
}
