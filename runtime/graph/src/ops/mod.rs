//! What ops mean. One file per op: the formula, the shape rule, the plain reference, its builder method, its cases,
//! and for composite ops a decomposition. To add an op: a row in `abi/src/op.rs`, its file, a `mod` line and an arm here.

mod attention;
mod binary;
mod copy;
mod get_rows;
mod glu;
mod layer_norm;
mod moe_weights;
mod mul_mat;
mod mul_mat_id;
mod paged_mask;
mod rms_norm;
mod rope;
mod scale;
mod set_rows;
mod soft_max;
mod sum_rows;
mod top_k;
mod unary;

mod check;
#[cfg(test)]
mod tests;

pub mod case;
pub mod value;

pub use attention::Paged;
pub use glu::Activation;

use crate::graph::{Graph, Node};
use crate::tensor::{Shape, Tensor, TensorDef};
use case::Case;
use llmrt_abi::{DType, Op};
use value::Value;

/// Dtype and shape of a result, or what is wrong with the operands.
pub type Inferred = Result<(DType, Shape), String>;

/// The meaning of one op.
pub struct Rules {
    /// From sources and params to dtype and shape of the result.
    infer: fn(&[Option<&TensorDef>], &[u8]) -> Inferred,
    /// The plain reference: contiguous values in, the result out. Sources are as `infer` accepted them.
    reference: fn(&[Option<&Value>], &[u8]) -> Value,
    /// Simpler ops that compute the same, appended to the graph; the last result replaces the node's.
    /// `None` from the function: not for these operands.
    decompose: Option<fn(&mut Graph, &Node) -> Option<Tensor>>,
    /// Operands to test every plugin with.
    cases: fn() -> Vec<Case>,
}

impl Rules {
    /// Result dtype and shape, or what is wrong with the operands.
    pub fn infer(&self, src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
        (self.infer)(src, params)
    }

    /// The result by the plain reference.
    pub fn reference(&self, src: &[Option<&Value>], params: &[u8]) -> Value {
        (self.reference)(src, params)
    }

    /// Appends simpler ops that compute the same; `None` if there are none for these operands.
    pub fn decompose(&self, g: &mut Graph, node: &Node) -> Option<Tensor> {
        self.decompose.and_then(|f| f(g, node))
    }

    /// Whether the op can be taken apart.
    pub fn is_composite(&self) -> bool {
        self.decompose.is_some()
    }

    /// Operands to test every plugin with.
    pub fn cases(&self) -> Vec<Case> {
        (self.cases)()
    }
}

/// The meaning of an op.
pub fn rules(op: Op) -> &'static Rules {
    match op {
        Op::GetRows => &get_rows::RULES,
        Op::SetRows => &set_rows::RULES,
        Op::MulMat => &mul_mat::RULES,
        Op::MulMatId => &mul_mat_id::RULES,
        Op::Add => &binary::ADD,
        Op::Sub => &binary::SUB,
        Op::Mul => &binary::MUL,
        Op::Div => &binary::DIV,
        Op::Scale => &scale::RULES,
        Op::Silu => &unary::SILU,
        Op::Gelu => &unary::GELU,
        Op::GeluErf => &unary::GELU_ERF,
        Op::GeluQuick => &unary::GELU_QUICK,
        Op::Relu => &unary::RELU,
        Op::Tanh => &unary::TANH,
        Op::Sigmoid => &unary::SIGMOID,
        Op::RmsNorm => &rms_norm::RULES,
        Op::LayerNorm => &layer_norm::RULES,
        Op::Rope => &rope::RULES,
        Op::SoftMax => &soft_max::RULES,
        Op::Attention => &attention::RULES,
        Op::PagedMask => &paged_mask::RULES,
        Op::Glu => &glu::RULES,
        Op::TopK => &top_k::RULES,
        Op::MoeWeights => &moe_weights::RULES,
        Op::SumRows => &sum_rows::RULES,
        Op::Copy => &copy::RULES,
    }
}
