//! `<model>.sparse.gguf`: what was measured, trained and decided for one model, in one GGUF file beside it.
//!
//! | tensor | what |
//! |---|---|
//! | `blk.N.counts` F64 [n_ff] | in how many tokens each neuron was active |
//! | `MATRIX.quantiles` F32 [n] | quantiles of the magnitudes of a matrix's inputs, evenly spaced from the least to the greatest |
//! | `blk.N.fc1.weight`, `blk.N.fc2.weight` | predictors, as in PowerInfer's models |
//! | `split.S.blk.N` I8 [n_ff] | which device computes a neuron: 0 the CPU, from 1 on those of `sparse.split.S.devices` |
//!
//! Thresholds are arrays of the metadata. The file names its model and has its [`digest`](crate::digest); with another
//! model it is refused.

mod read;
mod write;

pub use write::write;

use crate::{Counts, Error, ModelId};
use llmrt_gguf::TensorInfo;
use std::path::{Path, PathBuf};

/// Where a model's file is: `x.sparse.gguf` beside `x.gguf`.
pub fn path_beside(model: &Path) -> PathBuf {
    model.with_extension("sparse.gguf")
}

/// A key of models with predictors, for [`SparseFile::predictor_recall`].
pub const RECALL_KEY: &str = "llmrt.predictor_recall";

/// The architecture of these files.
pub const ARCH: &str = "llmrt.sparse";

/// The layout's version.
pub const VERSION: u32 = 1;

/// What a file holds. Every part may be missing.
#[derive(Clone, PartialEq, Debug)]
pub struct SparseFile {
    /// The model that it was made for.
    pub model: ModelId,
    /// Tokens that were counted over; 0 if that is not recorded.
    pub n_tokens: u64,
    /// Counts by layer.
    pub counts: Vec<Counts>,
    /// Quantiles by the name of a matrix, without `.weight`.
    pub quantiles: Vec<(String, Vec<f32>)>,
    /// Inputs of a matrix below this count as zeros; by its name without `.weight`.
    pub thresholds: Vec<(String, f32)>,
    /// A neuron counts as active if its predicted score is not below this.
    pub predictor_threshold: Option<f32>,
    /// The share of what all neurons give that those have which the predictors pick at this threshold, of texts that they were not
    /// trained on.
    pub predictor_recall: Option<f32>,
    /// The predictors' tensors, as they are in the file: fc1, then fc2 of each layer that has one.
    pub predictors: Vec<TensorInfo>,
    /// Divisions of the neurons among devices.
    pub splits: Vec<Split>,
}

/// One division of the neurons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// Names of the devices that it was made for, without the CPU.
    pub devices: Vec<String>,
    /// Bytes of neurons on each of them.
    pub bytes: Vec<u64>,
    /// By layer and neuron: 0 the CPU, else a device, counted from 1.
    pub device_of: Vec<Vec<u8>>,
}

impl SparseFile {
    /// A file without parts.
    pub fn new(model: ModelId) -> SparseFile {
        SparseFile {
            model,
            n_tokens: 0,
            counts: Vec::new(),
            quantiles: Vec::new(),
            thresholds: Vec::new(),
            predictor_threshold: None,
            predictor_recall: None,
            predictors: Vec::new(),
            splits: Vec::new(),
        }
    }

    /// Refuses a file that was made for another model, by that one's name.
    pub fn check_model(&self, model: &ModelId) -> Result<(), Error> {
        if self.model.checksum == model.checksum {
            return Ok(());
        }
        let short = |checksum: &str| checksum.chars().take(12).collect();
        Err(Error::OtherModel {
            made_for: self.model.name.clone(),
            found: short(&self.model.checksum),
            model: model.name.clone(),
            expected: short(&model.checksum),
        })
    }

    /// Refuses counts of other numbers of layers or neurons.
    pub fn check_counts(&self, n_ff: &[usize]) -> Result<(), Error> {
        check_counts(&self.counts, n_ff)
    }
}

/// Refuses counts of other numbers of layers or neurons.
pub fn check_counts(counts: &[Counts], n_ff: &[usize]) -> Result<(), Error> {
    let (found, expected) = (counts.len(), n_ff.len());
    if found != expected {
        return Err(Error::WrongLayers { found, expected });
    }
    counts.iter().zip(n_ff).try_for_each(|(counts, &n)| counts.check_n_ff(n))
}
