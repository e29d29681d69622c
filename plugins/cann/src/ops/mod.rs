//! The ops, a file per family: `supports` says which nodes the card runs, `compute` enqueues one.
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
mod fill;
mod get_rows;
mod glu;
mod group_norm;
mod ids;
mod im2col;
mod index_fill;
mod l2_norm;
mod layer_norm;
mod moe_weights;
mod mul_mat;
mod mul_mat_id;
mod order;
mod out_prod;
mod paged_mask;
mod paging;
mod pool;
mod reduce;
mod resample;
mod rms_norm;
mod rope;
mod scale;
mod sealed;
mod set_rows;
mod soft_max;
mod steps;
mod timestep_embedding;
mod tri;
mod unary;
mod weights;

use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};

/// What an op's file has.
struct Rules {
    /// Whether a card with this chip and these libraries runs a node, or what is in the way.
    supports: fn(&Cann, &Chip, &NodeView<'_>) -> check::Answer,
    /// Enqueues a node that `supports` accepted and whose result is not empty.
    compute: fn(&mut Call<'_>, &NodeView<'_>) -> Result<()>,
}

macro_rules! rules {
    ($($($op:ident)|+ => $file:ident;)*) => {
        fn rules(op: Op) -> Option<Rules> {
            Some(match op {
                $($(Op::$op)|+ => Rules { supports: $file::supports, compute: $file::compute },)*
                _ => return None,
            })
        }
    };
}

rules! {
    GetRows => get_rows;
    SetRows => set_rows;
    MulMat => mul_mat;
    MulMatId => mul_mat_id;
    Add | Sub | Mul | Div | Add1 | Pow => binary;
    Scale => scale;
    Silu | Gelu | GeluErf | GeluQuick | Relu | Tanh | Sigmoid => unary;
    Abs | Sgn | Neg | Step | Elu | HardSwish | HardSigmoid | Exp | Expm1 | Softplus => unary;
    Floor | Ceil | Round | Trunc | Sqr | Sqrt | Log | Sin | Cos | LeakyRelu | Clamp => unary;
    RmsNorm => rms_norm;
    Rope => rope;
    SoftMax => soft_max;
    Attention => attention;
    PagedMask => paged_mask;
    Glu => glu;
    TopK | Argsort => order;
    MoeWeights => moe_weights;
    Copy | Cpy => copy;
    LayerNorm => layer_norm;
    GroupNorm => group_norm;
    L2Norm => l2_norm;
    Sum | SumRows | Mean | Cumsum | Argmax => reduce;
    Concat | Repeat | RepeatInterleave | Roll => arrange;
    Pad | Upscale => resample;
    Fill | Arange | Diag => fill;
    Tri | DiagMaskInf | DiagMaskZero => tri;
    IndexFill => index_fill;
    Acc | Set => block;
    AddId => add_id;
    OutProd => out_prod;
    TimestepEmbedding => timestep_embedding;
    Pool1d | Pool2d => pool;
    Im2col => im2col;
    Conv1d | Conv1dDw | Conv2d | Conv2dDw | ConvTranspose1d | ConvTranspose2d => conv;
}

/// Whether a card with this chip and these libraries runs a node, or what is in the way.
pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> check::Answer {
    let rules = node.op().and_then(rules).ok_or(Reason::Op)?;
    check::ensure(node.op_version() == 1, Reason::Version)?;
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
