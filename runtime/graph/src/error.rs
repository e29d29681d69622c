//! What can be wrong with a graph.

use llmrt_abi::Op;

/// A node or view that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// An op refused its operands.
    #[error("{op} of `{tensor}`: {problem}")]
    Op {
        /// The op.
        op: Op,
        /// Name of the first source.
        tensor: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A view does not fit its tensor.
    #[error("view of `{tensor}`: {problem}")]
    View {
        /// The viewed tensor.
        tensor: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A tensor cannot have this shape.
    #[error("tensor `{tensor}`: {problem}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// The reference interpreter was not given a tensor.
    #[error("no value for tensor `{tensor}`: give it before running the graph")]
    NoValue {
        /// The tensor.
        tensor: String,
    },
}

/// Result of graph building.
pub type Result<T> = std::result::Result<T, Error>;
