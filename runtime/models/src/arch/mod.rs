//! The architectures. To add one: its file, a `mod` line and a row here.

mod deepseek2;
mod falcon;
mod gemma2;
mod gemma3;
mod gpt2;
mod llama;
mod mamba2;
mod phi3;
mod qwen2;
mod qwen3;

use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::{Error, Result};
use llmrt_gguf::{Metadata, printable_name};
use llmrt_graph::Tensor;

/// By their `general.architecture`.
const ARCHS: &[(&str, &Arch)] = &[
    ("deepseek2", &deepseek2::ARCH),
    ("falcon", &falcon::ARCH),
    ("gemma2", &gemma2::ARCH),
    ("gemma3", &gemma3::ARCH),
    ("gpt2", &gpt2::ARCH),
    ("llama", &llama::ARCH),
    ("mamba2", &mamba2::ARCH),
    ("phi3", &phi3::ARCH),
    ("qwen2", &qwen2::ARCH),
    ("qwen3", &qwen3::ARCH),
];

/// What is special about an architecture.
#[derive(Debug)]
pub(crate) struct Arch {
    /// Whether layers have heads and an FFN.
    has_attention: bool,
    /// How hidden states are normed.
    norm: Norm,
    /// How heads are rotated.
    rope: RopeKind,
    /// Reads the metadata that only this architecture has.
    config: fn(&mut Config, &Keys<'_>) -> Result<()>,
    /// Builds the graph; the result are the logits [n_vocab, n_outputs].
    pub graph: fn(&mut Builder<'_>) -> Result<Tensor>,
}

impl Arch {
    /// The configuration in the metadata.
    pub fn config(&self, meta: &Metadata, arch: &str) -> Result<Config> {
        let mut cfg = Config::read(meta, arch, self.has_attention, self.norm, self.rope)?;
        (self.config)(&mut cfg, &Keys { meta, arch })?;
        Ok(cfg)
    }
}

/// Names of the architectures, as `general.architecture` has them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHS.iter().map(|(name, _)| *name)
}

/// The architecture that a file names.
pub(crate) fn of(meta: &Metadata) -> Result<(&str, &'static Arch)> {
    let found: &str = meta.require("general.architecture")?;
    let known = ARCHS.iter().find(|(name, _)| *name == found);
    let (_, arch) = known.ok_or_else(|| Error::UnknownArchitecture {
        found: printable_name(found).into_owned(),
        expected: architectures().collect::<Vec<_>>().join(", "),
    })?;
    Ok((found, arch))
}
