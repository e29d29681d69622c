//! What ops mean. One file per op: the formula, the shape rule, the plain reference, its builder method, its cases,
//! and for composite ops a decomposition. To add an op: a row in `abi/src/op.rs`, its file, a `mod` line and an arm here.

mod acc;
mod activations;
mod add1;
mod add_id;
mod arange;
mod argmax;
mod argsort;
mod attention;
mod attention_contiguous;
mod binary;
mod col2im_1d;
mod concat;
mod conv_1d;
mod conv_1d_dw;
mod conv_2d;
mod conv_2d_dw;
mod conv_3d;
mod conv_transpose_1d;
mod conv_transpose_2d;
mod copy;
mod copy_cases;
mod count_equal;
mod cpy;
mod cumsum;
mod diag;
mod diag_mask_inf;
mod diag_mask_zero;
mod fill;
mod gated_delta_net;
mod gated_linear_attn;
mod get_rows;
mod glu;
mod group_norm;
mod im2col;
mod im2col_3d;
mod index_fill;
mod l2_norm;
mod layer_norm;
mod mean;
mod moe_weights;
mod mul_mat;
mod mul_mat_id;
mod mul_mat_sparse;
mod mul_mat_t;
mod out_prod;
mod pad;
mod paged_mask;
mod paged_scores;
mod pick;
mod pool_1d;
mod pool_2d;
mod repeat;
mod repeat_interleave;
mod rms_norm;
mod roll;
mod rope;
mod rwkv_wkv6;
mod rwkv_wkv7;
mod scale;
mod set;
mod set_rows;
mod set_rows_cases;
mod soft_max;
mod solve_tri;
mod sparse_attention;
mod ssm_conv;
mod ssm_conv_ragged;
mod ssm_scan;
mod sum;
mod sum_rows;
mod threshold;
mod timestep_embedding;
mod token_windows;
mod top_k;
mod tri;
mod unary;
mod upscale;
mod win_part;
mod win_unpart;

mod check;
mod convolution;
mod empty;
mod moves;
mod operand;
mod ragged;
mod recurrence;
#[cfg(test)]
mod tests;
mod window;

pub mod case;
pub mod value;

pub use attention::Paged;
pub use glu::Activation;
pub use pad::Padding;
pub use pick::Pick;
pub use tri::Triangle;
pub use upscale::Interpolation;

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
    /// The plain reference: contiguous values in, the result out. Sources are as `infer` accepted them, and the
    /// result is not empty.
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

    /// Appends simpler ops that compute the same; `None` if there are none for these operands, or an empty result
    /// leaves nothing to compute.
    pub fn decompose(&self, g: &mut Graph, node: &Node) -> Option<Tensor> {
        let is_empty = g.ne(node.dst).contains(&0);
        self.decompose.filter(|_| !is_empty).and_then(|f| f(g, node))
    }

    /// Whether the op can be taken apart.
    pub fn is_composite(&self) -> bool {
        self.decompose.is_some()
    }

    /// Operands to test every plugin with: those of the op's file, then some of them without elements.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = (self.cases)();
        cases.extend(empty::cases(self, &cases));
        cases
    }
}

/// The meaning of an op.
pub fn rules(op: Op) -> &'static Rules {
    match op {
        Op::GetRows => &get_rows::RULES,
        Op::SetRows => &set_rows::RULES,
        Op::MulMat => &mul_mat::RULES,
        Op::MulMatId => &mul_mat_id::RULES,
        Op::MulMatSparse => &mul_mat_sparse::RULES,
        Op::MulMatT => &mul_mat_t::RULES,
        Op::Threshold => &threshold::RULES,
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
        Op::PagedScores => &paged_scores::RULES,
        Op::SparseAttention => &sparse_attention::RULES,
        Op::Glu => &glu::RULES,
        Op::TopK => &top_k::RULES,
        Op::MoeWeights => &moe_weights::RULES,
        Op::SumRows => &sum_rows::RULES,
        Op::Copy => &copy::RULES,
        Op::Abs => &unary::ABS,
        Op::Sgn => &unary::SGN,
        Op::Neg => &unary::NEG,
        Op::Step => &unary::STEP,
        Op::Elu => &unary::ELU,
        Op::HardSwish => &unary::HARDSWISH,
        Op::HardSigmoid => &unary::HARDSIGMOID,
        Op::Exp => &unary::EXP,
        Op::Expm1 => &unary::EXPM1,
        Op::Softplus => &unary::SOFTPLUS,
        Op::Xielu => &unary::XIELU,
        Op::Floor => &unary::FLOOR,
        Op::Ceil => &unary::CEIL,
        Op::Round => &unary::ROUND,
        Op::Trunc => &unary::TRUNC,
        Op::Sqr => &unary::SQR,
        Op::Sqrt => &unary::SQRT,
        Op::Log => &unary::LOG,
        Op::Sin => &unary::SIN,
        Op::Cos => &unary::COS,
        Op::LeakyRelu => &unary::LEAKY_RELU,
        Op::Clamp => &unary::CLAMP,
        Op::Add1 => &add1::RULES,
        Op::AddId => &add_id::RULES,
        Op::Acc => &acc::RULES,
        Op::Set => &set::RULES,
        Op::Pow => &binary::POW,
        Op::CountEqual => &count_equal::RULES,
        Op::OutProd => &out_prod::RULES,
        Op::Sum => &sum::RULES,
        Op::Cumsum => &cumsum::RULES,
        Op::Mean => &mean::RULES,
        Op::Argmax => &argmax::RULES,
        Op::Argsort => &argsort::RULES,
        Op::Repeat => &repeat::RULES,
        Op::Concat => &concat::RULES,
        Op::Cpy => &cpy::RULES,
        Op::Diag => &diag::RULES,
        Op::DiagMaskInf => &diag_mask_inf::RULES,
        Op::DiagMaskZero => &diag_mask_zero::RULES,
        Op::Roll => &roll::RULES,
        Op::Pad => &pad::RULES,
        Op::Upscale => &upscale::RULES,
        Op::Arange => &arange::RULES,
        Op::Tri => &tri::RULES,
        Op::Fill => &fill::RULES,
        Op::RepeatInterleave => &repeat_interleave::RULES,
        Op::IndexFill => &index_fill::RULES,
        Op::WinPart => &win_part::RULES,
        Op::WinUnpart => &win_unpart::RULES,
        Op::TimestepEmbedding => &timestep_embedding::RULES,
        Op::GroupNorm => &group_norm::RULES,
        Op::L2Norm => &l2_norm::RULES,
        Op::Im2col => &im2col::RULES,
        Op::Im2col3d => &im2col_3d::RULES,
        Op::Col2im1d => &col2im_1d::RULES,
        Op::Conv1d => &conv_1d::RULES,
        Op::Conv1dDw => &conv_1d_dw::RULES,
        Op::Conv2d => &conv_2d::RULES,
        Op::Conv2dDw => &conv_2d_dw::RULES,
        Op::Conv3d => &conv_3d::RULES,
        Op::ConvTranspose1d => &conv_transpose_1d::RULES,
        Op::ConvTranspose2d => &conv_transpose_2d::RULES,
        Op::Pool1d => &pool_1d::RULES,
        Op::Pool2d => &pool_2d::RULES,
        Op::AttentionContiguous => &attention_contiguous::RULES,
        Op::SsmConv => &ssm_conv::RULES,
        Op::SsmConvRagged => &ssm_conv_ragged::RULES,
        Op::TokenWindows => &token_windows::RULES,
        Op::SsmScan => &ssm_scan::RULES,
        Op::RwkvWkv6 => &rwkv_wkv6::RULES,
        Op::RwkvWkv7 => &rwkv_wkv7::RULES,
        Op::GatedLinearAttn => &gated_linear_attn::RULES,
        Op::GatedDeltaNet => &gated_delta_net::RULES,
        Op::SolveTri => &solve_tri::RULES,
    }
}
