//! The ops, one file each: `supports` gives which nodes it runs, `compute` is one thread's part of the work.

pub mod acc;
pub mod add1;
pub mod add_id;
mod add_rows;
pub mod arange;
pub mod argmax;
pub mod args;
pub mod argsort;
pub mod attention;
pub mod attention_contiguous;
pub mod binary;
pub mod check;
pub mod col2im_1d;
pub mod concat;
pub mod conv_1d;
pub mod conv_1d_dw;
pub mod conv_2d;
pub mod conv_2d_dw;
pub mod conv_3d;
pub mod conv_transpose_1d;
pub mod conv_transpose_2d;
pub mod convolution;
pub mod copy;
pub mod cost;
pub mod count_equal;
pub mod cpy;
pub mod cumsum;
pub mod diag;
pub mod diag_mask_inf;
pub mod diag_mask_zero;
pub mod elementwise;
pub mod fill;
pub mod float;
pub mod gated_delta_net;
pub mod gated_linear_attn;
pub mod get_rows;
pub mod glu;
pub mod group_norm;
pub mod im2col;
pub mod im2col_3d;
pub mod index_fill;
pub mod l2_norm;
pub mod layer_norm;
pub mod mean;
pub mod moe_weights;
pub mod moves;
pub mod mul_mat;
pub mod mul_mat_id;
pub mod mul_mat_sparse;
pub mod mul_mat_t;
pub mod out_prod;
pub mod output;
pub mod pad;
pub mod paged_mask;
pub mod paged_scores;
pub mod paging;
pub mod pick;
pub mod pool_1d;
pub mod pool_2d;
pub mod prepare;
pub mod product;
mod product_floats;
mod product_quantised;
pub mod ragged;
pub mod recurrence;
pub mod repeat;
pub mod repeat_interleave;
pub mod rms_norm;
pub mod roll;
pub mod rope;
pub mod rows;
pub mod rwkv_wkv6;
pub mod rwkv_wkv7;
pub mod sample;
pub mod scale;
pub mod set;
pub mod set_rows;
pub mod soft_max;
pub mod solve_tri;
pub mod sparse_attention;
pub mod ssm_conv;
pub mod ssm_conv_ragged;
pub mod ssm_scan;
pub mod sum;
pub mod sum_rows;
pub mod threshold;
pub mod timestep_embedding;
pub mod token_windows;
pub mod top_k;
pub mod tri;
pub mod unary;
pub mod upscale;
pub mod win_part;
pub mod win_unpart;
pub mod window;
pub mod worker;

pub use args::Args;
pub use cost::{is_small, work};
pub use output::Output;
pub use prepare::Prepared;
pub use product::Column;
pub use worker::{Rank, Taken, Worker};

use crate::sealed::{self, Columns, Panels};
use crate::tensor::is_aligned;
use check::Answer;
use llmrt_plugin::{NodeView, Op, Reason, TensorView};

/// Whether the CPU runs a node, or what is in the way.
pub fn supports(node: &NodeView<'_>) -> Answer {
    let op = node.op().ok_or(Reason::Op)?;
    // Whatever an op without attributes is given is newer than this build.
    let is_newer = op.info().params.is_empty() && node.params_bytes().iter().any(|&byte| byte != 0);
    check::ensure(!is_newer, Reason::Param)?;
    let operands = || (0..op.info().max_src as usize).filter_map(|i| node.src(i)).chain([node.dst()]);
    check::ensure(operands().all(|t| is_aligned(&t)), Reason::Stride)?;
    (kernel(op).supports)(node)?;
    check::blocks_share_no_bytes(&node.dst())?;
    // Products and rows take the CPU's own layout. No op takes those of other plugins, whether it reads the bytes or
    // the shape alone.
    let reads_panels = matches!(op, Op::MulMat | Op::MulMatId | Op::GetRows);
    let is_sealed = |t: &TensorView<'_>| match t.layout_id() {
        sealed::ROWS_16 => reads_panels && Panels::of(t).is_some(),
        sealed::COLUMNS => op == Op::MulMat && Columns::of(t).is_some(),
        _ => false,
    };
    let table = node.src(0).filter(is_sealed);
    let others = operands().skip(usize::from(table.is_some()));
    check::ensure(others.into_iter().all(|t| t.layout_id() == 0), Reason::Layout)
}

/// One thread's part of a node that [`supports`] accepted.
pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    if a.dst.n_elems() > 0 {
        (kernel(a.op).compute)(w, a, out);
    }
}

/// Bytes of the team's memory that a node takes.
pub fn shared_bytes(a: &Args) -> usize {
    match a.op {
        Op::Attention => attention::shared_bytes(a),
        _ => prepare::shared_bytes(a),
    }
}

/// What an op's file offers.
struct Kernel {
    supports: fn(&NodeView<'_>) -> Answer,
    compute: fn(&mut Worker<'_>, &Args, Output<'_>),
}

/// THE table of the CPU: the file of every op. An op that has none does not compile.
macro_rules! kernels {
    ($($($op:ident)|+ => $file:ident;)*) => {
        fn kernel(op: Op) -> Kernel {
            match op {
                $($(Op::$op)|+ => Kernel { supports: $file::supports, compute: $file::compute },)*
            }
        }
    };
}

kernels! {
    GetRows => get_rows;
    SetRows => set_rows;
    MulMat => mul_mat;
    MulMatId => mul_mat_id;
    MulMatSparse => mul_mat_sparse;
    MulMatT => mul_mat_t;
    Threshold => threshold;
    Add | Sub | Mul | Div | Pow => binary;
    Scale => scale;
    Silu | Gelu | GeluErf | GeluQuick | Relu | Tanh | Sigmoid | Abs | Sgn | Neg | Step | Elu | HardSwish
    | HardSigmoid | Exp | Expm1 | Softplus | Xielu | Floor | Ceil | Round | Trunc | Sqr | Sqrt | Log | Sin | Cos
    | LeakyRelu | Clamp => unary;
    RmsNorm => rms_norm;
    LayerNorm => layer_norm;
    Rope => rope;
    SoftMax => soft_max;
    Attention => attention;
    PagedMask => paged_mask;
    PagedScores => paged_scores;
    SparseAttention => sparse_attention;
    Glu => glu;
    TopK => top_k;
    MoeWeights => moe_weights;
    SumRows => sum_rows;
    Copy => copy;
    Add1 => add1;
    AddId => add_id;
    Acc => acc;
    Set => set;
    CountEqual => count_equal;
    OutProd => out_prod;
    Sum => sum;
    Cumsum => cumsum;
    Mean => mean;
    Argmax => argmax;
    Argsort => argsort;
    Repeat => repeat;
    Concat => concat;
    Cpy => cpy;
    Diag => diag;
    DiagMaskInf => diag_mask_inf;
    DiagMaskZero => diag_mask_zero;
    Roll => roll;
    Pad => pad;
    Upscale => upscale;
    Arange => arange;
    Tri => tri;
    Fill => fill;
    RepeatInterleave => repeat_interleave;
    IndexFill => index_fill;
    WinPart => win_part;
    WinUnpart => win_unpart;
    TimestepEmbedding => timestep_embedding;
    GroupNorm => group_norm;
    L2Norm => l2_norm;
    Im2col => im2col;
    Im2col3d => im2col_3d;
    Col2im1d => col2im_1d;
    Conv1d => conv_1d;
    Conv1dDw => conv_1d_dw;
    Conv2d => conv_2d;
    Conv2dDw => conv_2d_dw;
    Conv3d => conv_3d;
    ConvTranspose1d => conv_transpose_1d;
    ConvTranspose2d => conv_transpose_2d;
    Pool1d => pool_1d;
    Pool2d => pool_2d;
    AttentionContiguous => attention_contiguous;
    SsmConv => ssm_conv;
    SsmConvRagged => ssm_conv_ragged;
    TokenWindows => token_windows;
    SsmScan => ssm_scan;
    RwkvWkv6 => rwkv_wkv6;
    RwkvWkv7 => rwkv_wkv7;
    GatedLinearAttn => gated_linear_attn;
    GatedDeltaNet => gated_delta_net;
    SolveTri => solve_tri;
}
