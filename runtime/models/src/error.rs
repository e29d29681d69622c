//! Why a file's tables do not make a model, or a batch not a graph.

use llmrt_abi::DType;

/// A model that cannot be built. The caller adds the name of the file.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// A metadata key is missing or of another type.
    #[error(transparent)]
    Metadata(#[from] llmrt_gguf::Error),

    /// A metadata value that makes no model.
    #[error("metadata key `{key}` is {found}: expected {expected}")]
    BadValue {
        /// The key, with its architecture.
        key: String,
        /// The value in the file.
        found: String,
        /// What would make sense.
        expected: String,
    },

    /// An architecture without a file in `arch/`.
    #[error(
        "metadata key `general.architecture` is `{found}`, which llmrt cannot build; nearest are {nearest} (docs/reference/models.md has all)"
    )]
    UnknownArchitecture {
        /// The value in the file.
        found: String,
        /// The architectures with the nearest names.
        nearest: String,
    },

    /// A file that other models need, and that is none by itself.
    #[error("metadata key `{key}` is `{found}`: {what}, not a model of text by itself")]
    PartOfModel {
        /// The key that names it.
        key: &'static str,
        /// The value in the file.
        found: String,
        /// What the file is.
        what: &'static str,
    },

    /// A tensor that the architecture needs is not in the file.
    #[error("tensor `{tensor}` is missing: {arch} needs it, with dims {expected:?}; convert the model again")]
    MissingTensor {
        /// GGUF's name.
        tensor: String,
        /// The architecture.
        arch: String,
        /// Elements per dim, innermost first.
        expected: Vec<u64>,
    },

    /// A tensor has other dims than the metadata require.
    #[error("tensor `{tensor}` has dims {found:?}: the metadata require {expected:?}")]
    TensorDims {
        /// GGUF's name.
        tensor: String,
        /// Elements per dim in the file, innermost first.
        found: Vec<u64>,
        /// Elements per dim by the metadata.
        expected: Vec<u64>,
    },

    /// A sparse mode of a model without zeros.
    #[error(
        "{arch}'s FFNs give no exact zeros, as those with ReLU do (metadata key `{arch}.hidden_activation`): use --sparse off"
    )]
    NoZeros {
        /// The architecture.
        arch: String,
    },

    /// Neurons are to be picked by predictors that the file does not have.
    #[error(
        "layer {layer} has no predictor (`fc1`, `fc2` and `ffn_down_t`), which --sparse predict needs: use --sparse exact, or a file with predictors, which `llmrt sparse predictor` trains and `llmrt sparse convert` writes"
    )]
    NoPredictors {
        /// The layer.
        layer: usize,
    },

    /// Small inputs are to count as zeros, and nothing decides which are small.
    #[error(
        "--sparse magnitude has no thresholds: measure the model's inputs with `llmrt sparse profile`, choose thresholds with `llmrt sparse thresholds`, or give one for all matrices with --sparse-threshold"
    )]
    NoThresholds,

    /// A batch without a graph.
    #[error("batch: {what} is {found}: expected {expected}")]
    BadBatch {
        /// The field of `BatchShape`.
        what: &'static str,
        /// The requested value.
        found: u64,
        /// What would make sense.
        expected: String,
    },

    /// Heads do not divide into blocks of the cache's type.
    #[error(
        "{cache} cache of layer {layer} cannot be {dtype}: a head of {head_dim} is not whole blocks of {block}"
    )]
    CacheType {
        /// `K` or `V`.
        cache: &'static str,
        /// The layer.
        layer: usize,
        /// The requested value.
        dtype: DType,
        /// Elements of a head.
        head_dim: u64,
        /// Elements of a block.
        block: usize,
    },

    /// An op refused its operands, for instance a tensor of a type it cannot read.
    #[error(transparent)]
    Graph(#[from] llmrt_graph::Error),
}

/// Result of building a model.
pub type Result<T> = std::result::Result<T, Error>;
