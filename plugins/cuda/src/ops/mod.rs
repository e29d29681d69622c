//! The ops, a file per family: `supports` decides which nodes a device runs, `compute` makes launches of one. What a
//! kernel computes stands in kernels/, under the name in `rules!`.

mod attention;
mod attention_contiguous;
mod attention_heads;
mod attention_tile;
mod by_cublas;
mod check;
mod columns;
mod conv;
mod element;
mod elementwise;
mod fuse;
mod gated;
mod image;
mod kept;
mod matrix;
mod moves;
mod mul_mat;
mod norm;
mod order;
mod place;
mod products;
mod rearrange;
mod recurrence;
mod reduce;
mod rope;
mod rows;
mod softmax;
mod ssm;
mod tiles;
mod wgmma;
mod window;

pub use fuse::compute_some;
pub use kept::Kept;
pub use wgmma::{Operands, Variant};

use crate::call::Call;
use crate::gpu::Gpu;
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};

/// What an op's file has.
struct Rules {
    /// Whether a device runs a node, or the unmet requirement.
    supports: fn(&NodeView<'_>) -> check::Answer,
    /// The launches of a node that `supports` accepted and whose result is not empty.
    compute: fn(&mut Call<'_>, &NodeView<'_>) -> Result<()>,
    /// The file of kernels.
    family: &'static str,
}

macro_rules! rules {
    ($($($op:ident)|+ => $file:ident::$form:ident, $family:literal;)*) => {
        fn rules(op: Op) -> Rules {
            match op {
                $($(Op::$op)|+ => {
                    let form = $file::$form;
                    Rules { supports: form.0, compute: form.1, family: $family }
                })*
            }
        }
    };
}

/// `supports` and `compute` of a form of ops.
type Form = (fn(&NodeView<'_>) -> check::Answer, fn(&mut Call<'_>, &NodeView<'_>) -> Result<()>);

rules! {
    GetRows => rows::GET_ROWS, "rows";
    SetRows => rows::SET_ROWS, "rows";
    MulMat => mul_mat::MUL_MAT, "mul_mat";
    MulMatId => mul_mat::MUL_MAT_ID, "mul_mat";
    Add | Sub | Mul | Div | Pow | Add1 => elementwise::BINARY, "elementwise";
    Scale | Silu | Gelu | GeluErf | GeluQuick | Relu | Tanh | Sigmoid | Abs | Sgn | Neg | Step | Elu | HardSwish
        | HardSigmoid | Exp | Expm1 | Softplus | Xielu | Floor | Ceil | Round | Trunc | Sqr | Sqrt | Log | Sin | Cos
        | LeakyRelu | Clamp => elementwise::UNARY, "elementwise";
    Glu => elementwise::GLU, "elementwise";
    RmsNorm | LayerNorm | L2Norm => norm::NORM, "norm";
    Rope => rope::ROPE, "rope";
    SoftMax => softmax::SOFT_MAX, "softmax";
    MoeWeights => softmax::MOE_WEIGHTS, "softmax";
    Attention => attention::ATTENTION, "attention";
    PagedMask => attention::PAGED_MASK, "attention";
    Copy => rows::COPY, "rows";
    Cpy => rows::CPY, "rows";
    Concat => rows::CONCAT, "rows";
    Repeat | RepeatInterleave => rows::REPEAT, "rows";
    DiagMaskInf | DiagMaskZero | Acc | AddId | Arange => place::PLACE, "place";
    Fill | Tri | Diag | Roll | Pad | Set => rearrange::REARRANGE, "moves";
    SumRows | Mean | Argmax | Cumsum => reduce::REDUCE, "reduce";
    Sum => reduce::SUM, "reduce";
    TopK | Argsort => order::ORDER, "order";
    CountEqual => reduce::COUNT_EQUAL, "reduce";
    AttentionContiguous => attention_contiguous::ATTENTION_CONTIGUOUS, "attention_contiguous";
    GroupNorm => norm::GROUP_NORM, "norm";
    OutProd => matrix::OUT_PROD, "matrix";
    SolveTri => matrix::SOLVE_TRI, "matrix";
    SsmConv => ssm::SSM_CONV, "ssm";
    SsmScan => ssm::SSM_SCAN, "ssm";
    SsmConvRagged | TokenWindows | PagedScores | SparseAttention | MulMatSparse | MulMatT | Threshold => ssm::NONE, "ssm";
    GatedLinearAttn => recurrence::GATED_LINEAR_ATTN, "recurrence";
    GatedDeltaNet => recurrence::GATED_DELTA_NET, "recurrence";
    RwkvWkv6 => recurrence::RWKV_WKV6, "recurrence";
    RwkvWkv7 => recurrence::RWKV_WKV7, "recurrence";
    Conv1d | Conv1dDw | Conv2d | Conv2dDw | Conv3d => conv::CONVOLUTION, "conv";
    ConvTranspose1d | ConvTranspose2d => conv::TRANSPOSED, "conv";
    Im2col | Im2col3d => columns::IM2COL, "conv";
    Col2im1d => columns::COL2IM_1D, "conv";
    Pool1d | Pool2d => image::POOL, "image";
    Upscale => image::UPSCALE, "image";
    TimestepEmbedding => elementwise::TIMESTEPS, "elementwise";
    WinPart | WinUnpart => moves::WINDOWS, "moves";
    IndexFill => moves::INDEX_FILL, "moves";
}

/// The file of kernels that an op is in.
pub fn family(op: Op) -> &'static str {
    rules(op).family
}

/// Whether a device runs a node, or the unmet requirement.
pub fn supports(node: &NodeView<'_>) -> check::Answer {
    let rules = node.op().map(rules).ok_or(Reason::Op)?;
    check::ensure(node.op_version() == 1, Reason::Version)?;
    check::form(node)?;
    (rules.supports)(node)
}

/// Bytes of scratch memory that a node which [`supports`] accepted takes for a while, at most: the sum of what its
/// launches request.
pub fn workspace(node: &NodeView<'_>, gpu: &Gpu) -> u64 {
    let bytes = match node.op() {
        Some(Op::MulMat | Op::MulMatId) => mul_mat::workspace(node, gpu),
        Some(Op::Attention) => attention::workspace(node, &gpu.identity).map(|bytes| pieces(&[bytes])),
        Some(Op::AttentionContiguous) => attention_contiguous::workspace(node),
        Some(Op::OutProd) => source(node, 0).map(|a| rows::unpacked_bytes(&a)),
        Some(Op::Copy | Op::Cpy) => rows::workspace(node),
        Some(Op::TopK | Op::Argsort) => order::workspace(node),
        _ => Ok(0),
    };
    bytes.unwrap_or(0) as u64
}

/// Bytes of pieces of scratch memory: each takes a multiple of 256.
fn pieces(bytes: &[usize]) -> usize {
    bytes.iter().map(|n| n.next_multiple_of(256)).sum()
}

/// The launches of a node that [`supports`] accepted and whose result is not empty.
pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    if check::layouts(node).is_err() {
        return Err(Error::unsupported(format!("op {} of a sealed weight", node.op_id())));
    }
    match node.op().map(rules) {
        Some(rules) => (rules.compute)(call, node),
        None => Err(Error::unsupported(format!("op {}", node.op_id()))),
    }
}

/// A source that must be there.
fn source<'a>(node: &NodeView<'a>, i: usize) -> Result<llmrt_plugin::TensorView<'a>> {
    node.src(i).ok_or_else(missing)
}

fn missing() -> Error {
    Error::invalid("a source is missing, or params are newer than this code")
}

/// Blocks of `threads` for `n` elements, as a grid of one dim.
fn blocks(n: usize, threads: usize) -> [usize; 3] {
    [n.div_ceil(threads), 1, 1]
}
