//! llama2.c checkpoints: three formats of one model family, as tables with GGUF's tensor names.

mod config;
mod int8;
mod layout;
mod metadata;
mod tokenizer;

pub use config::{Config, Version};
pub use int8::dequantise;
pub use layout::{CheckpointTensor, Storage};
pub use metadata::to_metadata;
pub use tokenizer::TokenizerBin;

pub(crate) use config::version;

use crate::error::Error;
use crate::tensor::TensorInfo;

/// The tables of one checkpoint file.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// Which of the three formats.
    pub version: Version,
    /// The model's sizes.
    pub config: Config,
    /// The tensors in file order, one per layer and role.
    pub tensors: Vec<CheckpointTensor>,
}

impl Checkpoint {
    /// Reads the tables of a file of `file_len` bytes that begins with `prefix`; 256 bytes of it are enough.
    ///
    /// The length must be exactly what the configuration requires: format 0 has no other mark.
    pub fn parse(prefix: &[u8], file_len: u64) -> Result<Checkpoint, Error> {
        let header = config::read(prefix, file_len)?;
        let tensors = layout::tensors(&header, file_len)?;
        Ok(Checkpoint { version: header.version, config: header.config, tensors })
    }

    /// The tensor of this GGUF name.
    pub fn tensor(&self, name: &str) -> Option<&CheckpointTensor> {
        self.tensors.iter().find(|t| t.shape.name == name)
    }

    /// The tensors in place, if all are f32 (formats 0 and 1). Offsets are multiples of 4, not of 32.
    pub fn f32_tensors(&self) -> Option<Vec<TensorInfo>> {
        self.tensors.iter().map(CheckpointTensor::f32_in_place).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
