//! What ops mean, and graphs of them: builder, shape rules, plain references, decompositions, quantised formats,
//! liveness and memory planning, text dump. Independent of devices.
//!
//! The front page, with an example of embedding and all crates, is [llmrt_engine](../llmrt_engine/index.html).
#![forbid(unsafe_code)]

pub mod error;
pub mod graph;
pub mod ops;
pub mod plan;
pub mod quant;
pub mod reference;
pub mod rows;
pub mod tensor;

mod dump;
mod expand;
mod needed;
mod uid;

pub use error::{Error, Result};
pub use graph::{Graph, Node};
pub use needed::Needed;
pub use ops::{Activation, Interpolation, Padding, Paged, Pick, Triangle};
pub use tensor::{Kind, Role, Shape, Tensor, TensorDef};
