//! The ops, a file per family: `supports` decides which nodes the card runs, `compute` enqueues one.
//!
//! [`steps`] has the operators that compositions are written in.

mod add_id;
mod arrange;
mod attention;
mod attention_fused;
mod binary;
mod block;
mod check;
mod conv;
mod copy;
mod encode;
mod fill;
mod get_rows;
mod glu;
mod group_norm;
mod grouped;
mod ids;
mod im2col;
mod index_fill;
mod l2_norm;
mod largest;
mod layer_norm;
mod moe_weights;
mod mul_mat;
mod mul_mat_id;
mod order;
mod out_prod;
mod packed;
mod paged_mask;
mod paging;
mod pool;
mod product;
mod reduce;
mod resample;
mod rms_norm;
mod rope;
mod rope_table;
mod scale;
mod sealed;
mod set_rows;
mod soft_max;
mod steps;
mod timestep_embedding;
mod tri;
mod unary;
mod weights;

pub use attention_fused::block_size;

use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};

/// What an op's file has.
struct Rules {
    /// Whether a card with this chip and these libraries runs a node, or the unmet requirement.
    supports: fn(&Cann, &Chip, &NodeView<'_>) -> check::Answer,
    /// Enqueues a node that `supports` accepted and whose result is not empty.
    compute: fn(&mut Call<'_>, &NodeView<'_>) -> Result<()>,
    /// The operators, for people.
    how: &'static str,
}

macro_rules! rules {
    ($($($op:ident)|+ => $file:ident, $how:literal;)*) => {
        fn rules(op: Op) -> Option<Rules> {
            Some(match op {
                $($(Op::$op)|+ => Rules { supports: $file::supports, compute: $file::compute, how: $how },)*
                _ => return None,
            })
        }
    };
}

rules! {
    GetRows => get_rows, "GatherV2; sealed tables: composed, of bytes and scales";
    SetRows => set_rows, "InplaceIndexCopy, of rows made unambiguous";
    MulMat => mul_mat, "Mm, Matmul; Q4_0, Q5_0, Q8_0: WeightQuantBatchMatmulV2, or decoded in pieces; BF16: rows of two BF16 numbers each";
    MulMatId => mul_mat_id, "Argsort, GroupedMatmulV4 on 910B with F16 and Q4_0; otherwise GatherV2 of experts and products, or products with all experts and GatherV2";
    Add | Add1 => binary, "Add";
    Sub => binary, "Sub";
    Mul => binary, "Mul";
    Div => binary, "Div";
    Pow => binary, "PowTensorTensor";
    Scale => scale, "Muls, Adds";
    Silu => unary, "Silu";
    Gelu | GeluErf => unary, "GeluV2";
    GeluQuick => unary, "FastGelu";
    Relu => unary, "Relu";
    Tanh => unary, "Tanh";
    Sigmoid => unary, "Sigmoid";
    Abs => unary, "Abs";
    Sgn => unary, "Sign";
    Neg => unary, "Neg";
    Step => unary, "composed: Sign, Clamp";
    Elu => unary, "Elu";
    HardSwish => unary, "Hardswish";
    HardSigmoid => unary, "Hardsigmoid";
    Exp => unary, "Exp";
    Expm1 => unary, "Expm1";
    Softplus => unary, "Softplus";
    Floor => unary, "Floor";
    Ceil => unary, "Ceil";
    Round => unary, "composed: Trunc of x and of twice the rest";
    Trunc => unary, "Trunc";
    Sqr => unary, "Mul";
    Sqrt => unary, "Sqrt";
    Log => unary, "Log";
    Sin => unary, "Sin";
    Cos => unary, "Cos";
    LeakyRelu => unary, "LeakyRelu";
    Clamp => unary, "Clamp";
    RmsNorm => rms_norm, "RmsNorm, or composed: Mul, ReduceSum, Rsqrt";
    LayerNorm => layer_norm, "LayerNorm";
    GroupNorm => group_norm, "GroupNorm";
    L2Norm => l2_norm, "Norm, ClampMin, Div";
    Rope => rope, "RotaryPositionEmbedding, or composed; tables composed once per graph";
    SoftMax => soft_max, "Softmax, with mask, slopes and sinks composed before it";
    Attention => attention, "FusedInferAttentionScoreV2; on 310P IncreFlashAttentionV4 for single queries without shared heads; composed with soft cap, ALiBi, sinks, F32 caches, or without the operator";
    PagedMask => paged_mask, "composed";
    Glu => glu, "SwiGlu, or composed: activation, Mul";
    TopK | Argsort => order, "composed: places are counted, because ties have an order";
    MoeWeights => moe_weights, "composed: Softmax or Sigmoid, GatherV2, ReduceSum, Div";
    Copy | Cpy => copy, "InplaceCopy; quantised: composed";
    Sum | SumRows => reduce, "ReduceSum";
    Mean => reduce, "Mean";
    Cumsum => reduce, "Cumsum";
    Argmax => reduce, "ArgMax";
    Concat => arrange, "Cat";
    Repeat => arrange, "Repeat";
    RepeatInterleave => arrange, "RepeatInterleaveIntWithDim";
    Roll => arrange, "Roll";
    Pad => resample, "ConstantPadNd; mirrored and circular: GatherV2 by counted places";
    Upscale => resample, "nearest: UpsampleNearest2d, or InplaceCopy that broadcasts";
    Fill => fill, "InplaceFillScalar";
    Arange => fill, "Arange";
    Diag => fill, "composed: InplaceCopy into the diagonal";
    Tri => tri, "Triu, Tril";
    DiagMaskInf | DiagMaskZero => tri, "Tril; -inf: InplaceTriu, Add";
    IndexFill => index_fill, "composed: InplaceMaskedFillScalar where an index names the place";
    Acc => block, "Add into a view";
    Set => block, "InplaceCopy into a view";
    AddId => add_id, "composed: GatherV2, Add";
    OutProd => out_prod, "Matmul of turned views";
    TimestepEmbedding => timestep_embedding, "composed: Arange, Exp, Mul, Cos, Sin";
    Pool1d | Pool2d => pool, "AvgPool2d, MaxPool";
    Im2col => im2col, "Im2col, then a permuted copy";
    Conv1d | Conv1dDw | Conv2d | Conv2dDw | ConvTranspose1d | ConvTranspose2d => conv, "Convolution";
}

/// How an op is computed, for people; `None`: not on a card.
pub fn how(op: Op) -> Option<&'static str> {
    rules(op).map(|rules| rules.how)
}

/// Whether the op is one operator where the library lacks these; otherwise smaller ones make it up.
pub fn is_of_library(op: Op, lacks: &[&str]) -> bool {
    let composed = how(op).is_none_or(|how| how.starts_with("composed"));
    let own = match op {
        Op::Attention => "aclnnFusedInferAttentionScoreV2",
        Op::MulMatId => "aclnnGroupedMatmulV4",
        Op::Rope => "aclnnRotaryPositionEmbedding",
        Op::RmsNorm => "aclnnRmsNorm",
        _ => "",
    };
    !composed && !lacks.contains(&own)
}

/// Whether a card with this chip and these libraries runs a node, or the unmet requirement.
pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> check::Answer {
    let rules = node.op().and_then(rules).ok_or(Reason::Op)?;
    check::ensure(node.op_version() == 1, Reason::Version)?;
    check::form(node)?;
    (rules.supports)(cann, chip, node)
}

/// Enqueues a node that [`supports`] accepted and whose result is not empty.
pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    match node.op().and_then(rules) {
        Some(rules) => (rules.compute)(call, node),
        None => Err(Error::unsupported(format!("op {}", node.op_id()))),
    }
}

/// A source that must be there.
fn source(node: &NodeView<'_>, i: usize) -> Result<Operand> {
    Operand::of(&node.src(i).ok_or_else(missing)?)
}

fn missing() -> Error {
    Error::invalid("a source is missing")
}
