//! Which inputs of products count as zeros: neurons of FFNs that do not fire, or small inputs of any matrix.

use super::{Config, Keys};
use crate::error::{Error, Result};
use std::sync::Arc;

/// What is between the matrices of an FFN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HiddenActivation {
    /// silu(gate) · up.
    Silu,
    /// max(gate, 0) · up; without a gate max(up, 0).
    Relu,
    /// max(gate, 0)² · up; without a gate max(up, 0)² (Primer, arXiv 2109.08668).
    ReluSquared,
    /// max(gate, 0) · max(up, 0) (TurboSparse, arXiv 2406.05955); without a gate max(up, 0).
    Drelu,
}

const NAMES: [(&str, HiddenActivation); 4] = [
    ("silu", HiddenActivation::Silu),
    ("relu", HiddenActivation::Relu),
    ("relu2", HiddenActivation::ReluSquared),
    ("drelu", HiddenActivation::Drelu),
];

/// Which neurons of a token are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SparseMode {
    /// `Predict` of models with predictors, `Exact` of others with zeros, else `Off`.
    #[default]
    Auto,
    /// All.
    Off,
    /// Those that the activation does not make zero: the same results as `Off`.
    Exact,
    /// Those that the file's predictor picks.
    Predict,
    /// All, of inputs that are not small: those of a layer's matrices below a threshold count as zeros (TEAL, arXiv 2408.14690).
    Magnitude,
}

impl SparseMode {
    /// As `--sparse` takes it.
    pub fn name(self) -> &'static str {
        match self {
            SparseMode::Auto => "auto",
            SparseMode::Off => "off",
            SparseMode::Exact => "exact",
            SparseMode::Predict => "predict",
            SparseMode::Magnitude => "magnitude",
        }
    }
}

/// How the user chooses neurons.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SparseOptions {
    /// Which are computed.
    pub mode: SparseMode,
    /// The score from which on a predictor picks a neuron, instead of the file's; with `Magnitude`, the size from which on inputs
    /// count, of all matrices.
    pub threshold: Option<f32>,
    /// With `Magnitude` and without `threshold`: the size from which on inputs of a matrix count, by its name without `.weight`.
    pub thresholds: Arc<[(String, f32)]>,
}

/// Whether small inputs of a layer's matrix of this name, without `.weight`, may count as zeros: those of attention and of a plain FFN.
pub fn takes_threshold(matrix: &str) -> bool {
    const MATRICES: [&str; 8] =
        ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    MATRICES.contains(&matrix)
}

/// What a file has of it, and what the user chose.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NeuronConfig {
    /// The activation, of files that name it.
    pub activation: Option<HiddenActivation>,
    /// The score from which on a predictor picks a neuron, by the file.
    pub threshold: f32,
    /// The user's choice.
    pub options: SparseOptions,
}

impl NeuronConfig {
    /// The score from which on a predictor picks a neuron.
    pub fn threshold(&self) -> f32 {
        self.options.threshold.unwrap_or(self.threshold)
    }

    /// The size from which on inputs of a layer's matrix count, if smaller ones do not: of the matrix of this name in the layer, which
    /// is `path` in the file, both without `.weight`.
    pub fn input_threshold(&self, name: &str, path: &str) -> Option<f32> {
        if self.options.mode != SparseMode::Magnitude || !takes_threshold(name) {
            return None;
        }
        let found = self.options.thresholds.iter().find(|(known, _)| known == path);
        self.options.threshold.or(found.map(|(_, threshold)| *threshold)).filter(|threshold| *threshold > 0.0)
    }

    pub(super) fn read(keys: &Keys<'_>) -> Result<NeuronConfig> {
        const KEY: &str = "powerinfer.sparse_threshold";
        let threshold: f32 = keys.meta.optional(KEY)?.unwrap_or(0.0);
        match threshold.is_nan() {
            true => {
                Err(Error::BadValue { key: KEY.into(), found: "NaN".into(), expected: "a number".into() })
            }
            false => Ok(NeuronConfig { threshold, ..NeuronConfig::default() }),
        }
    }
}

impl Config {
    /// Reads the activation between an FFN's matrices, which files of some architectures may name.
    pub(crate) fn read_hidden_activation(&mut self, keys: &Keys<'_>) -> Result<()> {
        const KEY: &str = "hidden_activation";
        if let Some(found) = keys.optional::<&str>(KEY)? {
            let known = NAMES.iter().find(|(name, _)| *name == found);
            let (_, activation) = known.ok_or_else(|| keys.bad(KEY, found, "silu, relu, relu2 or drelu"))?;
            self.neurons.activation = Some(*activation);
        }
        Ok(())
    }
}
