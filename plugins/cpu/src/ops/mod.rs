//! The ops, one file each: `supports` says which nodes it runs, `compute` is one thread's part of the work.

pub mod acc;
pub mod add1;
pub mod add_id;
pub mod arange;
pub mod argmax;
pub mod argsort;
pub mod attention;
pub mod attention_contiguous;
mod attention_tile;
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
pub mod count_equal;
pub mod cpy;
pub mod cumsum;
pub mod diag;
pub mod diag_mask_inf;
pub mod diag_mask_zero;
pub mod fill;
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
pub mod out_prod;
pub mod pad;
pub mod paged_mask;
pub mod paging;
pub mod pool_1d;
pub mod pool_2d;
pub mod product;
pub mod repeat;
pub mod repeat_interleave;
pub mod rms_norm;
pub mod roll;
pub mod rope;
pub mod rows;
pub mod rwkv_wkv6;
pub mod rwkv_wkv7;
pub mod scale;
pub mod set;
pub mod set_rows;
pub mod soft_max;
pub mod solve_tri;
pub mod ssm_conv;
pub mod ssm_scan;
pub mod sum;
pub mod sum_rows;
pub mod timestep_embedding;
pub mod top_k;
pub mod tri;
pub mod unary;
pub mod upscale;
pub mod win_part;
pub mod win_unpart;
pub mod window;

pub use mul_mat::Column;

use crate::scratch::{Scratch, Shared};
use crate::simd::Isa;
use crate::tensor::Tensor;
use check::Answer;
use llmrt_plugin::{Error, NodeView, Op, Reason, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether the CPU runs a node, or what is in the way.
pub fn supports(node: &NodeView<'_>) -> Answer {
    let op = node.op().ok_or(Reason::Op)?;
    match op {
        Op::GetRows => get_rows::supports(node),
        Op::SetRows => set_rows::supports(node),
        Op::MulMat => mul_mat::supports(node),
        Op::MulMatId => mul_mat_id::supports(node),
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Pow => binary::supports(node),
        Op::Scale => scale::supports(node),
        Op::Silu
        | Op::Gelu
        | Op::GeluErf
        | Op::GeluQuick
        | Op::Relu
        | Op::Tanh
        | Op::Sigmoid
        | Op::Abs
        | Op::Sgn
        | Op::Neg
        | Op::Step
        | Op::Elu
        | Op::HardSwish
        | Op::HardSigmoid
        | Op::Exp
        | Op::Expm1
        | Op::Softplus
        | Op::Xielu
        | Op::Floor
        | Op::Ceil
        | Op::Round
        | Op::Trunc
        | Op::Sqr
        | Op::Sqrt
        | Op::Log
        | Op::Sin
        | Op::Cos
        | Op::LeakyRelu
        | Op::Clamp => unary::supports(node),
        Op::RmsNorm => rms_norm::supports(node),
        Op::LayerNorm => layer_norm::supports(node),
        Op::Rope => rope::supports(node),
        Op::SoftMax => soft_max::supports(node),
        Op::Attention => attention::supports(node),
        Op::PagedMask => paged_mask::supports(node),
        Op::Glu => glu::supports(node),
        Op::TopK => top_k::supports(node),
        Op::MoeWeights => moe_weights::supports(node),
        Op::SumRows => sum_rows::supports(node),
        Op::Copy => copy::supports(node),
        Op::Add1 => add1::supports(node),
        Op::AddId => add_id::supports(node),
        Op::Acc => acc::supports(node),
        Op::Set => set::supports(node),
        Op::CountEqual => count_equal::supports(node),
        Op::OutProd => out_prod::supports(node),
        Op::Sum => sum::supports(node),
        Op::Cumsum => cumsum::supports(node),
        Op::Mean => mean::supports(node),
        Op::Argmax => argmax::supports(node),
        Op::Argsort => argsort::supports(node),
        Op::Repeat => repeat::supports(node),
        Op::Concat => concat::supports(node),
        Op::Cpy => cpy::supports(node),
        Op::Diag => diag::supports(node),
        Op::DiagMaskInf => diag_mask_inf::supports(node),
        Op::DiagMaskZero => diag_mask_zero::supports(node),
        Op::Roll => roll::supports(node),
        Op::Pad => pad::supports(node),
        Op::Upscale => upscale::supports(node),
        Op::Arange => arange::supports(node),
        Op::Tri => tri::supports(node),
        Op::Fill => fill::supports(node),
        Op::RepeatInterleave => repeat_interleave::supports(node),
        Op::IndexFill => index_fill::supports(node),
        Op::WinPart => win_part::supports(node),
        Op::WinUnpart => win_unpart::supports(node),
        Op::TimestepEmbedding => timestep_embedding::supports(node),
        Op::GroupNorm => group_norm::supports(node),
        Op::L2Norm => l2_norm::supports(node),
        Op::Im2col => im2col::supports(node),
        Op::Im2col3d => im2col_3d::supports(node),
        Op::Col2im1d => col2im_1d::supports(node),
        Op::Conv1d => conv_1d::supports(node),
        Op::Conv1dDw => conv_1d_dw::supports(node),
        Op::Conv2d => conv_2d::supports(node),
        Op::Conv2dDw => conv_2d_dw::supports(node),
        Op::Conv3d => conv_3d::supports(node),
        Op::ConvTranspose1d => conv_transpose_1d::supports(node),
        Op::ConvTranspose2d => conv_transpose_2d::supports(node),
        Op::Pool1d => pool_1d::supports(node),
        Op::Pool2d => pool_2d::supports(node),
        Op::AttentionContiguous => attention_contiguous::supports(node),
        Op::SsmConv => ssm_conv::supports(node),
        Op::SsmScan => ssm_scan::supports(node),
        Op::RwkvWkv6 => rwkv_wkv6::supports(node),
        Op::RwkvWkv7 => rwkv_wkv7::supports(node),
        Op::GatedLinearAttn => gated_linear_attn::supports(node),
        Op::GatedDeltaNet => gated_delta_net::supports(node),
        Op::SolveTri => solve_tri::supports(node),
    }
}

/// One thread's part of a node that [`supports`] accepted.
pub fn compute(w: &mut Worker<'_>, a: &Args) {
    if a.dst.n_elems() == 0 {
        return;
    }
    match a.op {
        Op::GetRows => get_rows::compute(w, a),
        Op::SetRows => set_rows::compute(w, a),
        Op::MulMat => mul_mat::compute(w, a),
        Op::MulMatId => mul_mat_id::compute(w, a),
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Pow => binary::compute(w, a),
        Op::Scale => scale::compute(w, a),
        Op::Silu
        | Op::Gelu
        | Op::GeluErf
        | Op::GeluQuick
        | Op::Relu
        | Op::Tanh
        | Op::Sigmoid
        | Op::Abs
        | Op::Sgn
        | Op::Neg
        | Op::Step
        | Op::Elu
        | Op::HardSwish
        | Op::HardSigmoid
        | Op::Exp
        | Op::Expm1
        | Op::Softplus
        | Op::Xielu
        | Op::Floor
        | Op::Ceil
        | Op::Round
        | Op::Trunc
        | Op::Sqr
        | Op::Sqrt
        | Op::Log
        | Op::Sin
        | Op::Cos
        | Op::LeakyRelu
        | Op::Clamp => unary::compute(w, a),
        Op::RmsNorm => rms_norm::compute(w, a),
        Op::LayerNorm => layer_norm::compute(w, a),
        Op::Rope => rope::compute(w, a),
        Op::SoftMax => soft_max::compute(w, a),
        Op::Attention => attention::compute(w, a),
        Op::PagedMask => paged_mask::compute(w, a),
        Op::Glu => glu::compute(w, a),
        Op::TopK => top_k::compute(w, a),
        Op::MoeWeights => moe_weights::compute(w, a),
        Op::SumRows => sum_rows::compute(w, a),
        Op::Copy => copy::compute(w, a),
        Op::Add1 => add1::compute(w, a),
        Op::AddId => add_id::compute(w, a),
        Op::Acc => acc::compute(w, a),
        Op::Set => set::compute(w, a),
        Op::CountEqual => count_equal::compute(w, a),
        Op::OutProd => out_prod::compute(w, a),
        Op::Sum => sum::compute(w, a),
        Op::Cumsum => cumsum::compute(w, a),
        Op::Mean => mean::compute(w, a),
        Op::Argmax => argmax::compute(w, a),
        Op::Argsort => argsort::compute(w, a),
        Op::Repeat => repeat::compute(w, a),
        Op::Concat => concat::compute(w, a),
        Op::Cpy => cpy::compute(w, a),
        Op::Diag => diag::compute(w, a),
        Op::DiagMaskInf => diag_mask_inf::compute(w, a),
        Op::DiagMaskZero => diag_mask_zero::compute(w, a),
        Op::Roll => roll::compute(w, a),
        Op::Pad => pad::compute(w, a),
        Op::Upscale => upscale::compute(w, a),
        Op::Arange => arange::compute(w, a),
        Op::Tri => tri::compute(w, a),
        Op::Fill => fill::compute(w, a),
        Op::RepeatInterleave => repeat_interleave::compute(w, a),
        Op::IndexFill => index_fill::compute(w, a),
        Op::WinPart => win_part::compute(w, a),
        Op::WinUnpart => win_unpart::compute(w, a),
        Op::TimestepEmbedding => timestep_embedding::compute(w, a),
        Op::GroupNorm => group_norm::compute(w, a),
        Op::L2Norm => l2_norm::compute(w, a),
        Op::Im2col => im2col::compute(w, a),
        Op::Im2col3d => im2col_3d::compute(w, a),
        Op::Col2im1d => col2im_1d::compute(w, a),
        Op::Conv1d => conv_1d::compute(w, a),
        Op::Conv1dDw => conv_1d_dw::compute(w, a),
        Op::Conv2d => conv_2d::compute(w, a),
        Op::Conv2dDw => conv_2d_dw::compute(w, a),
        Op::Conv3d => conv_3d::compute(w, a),
        Op::ConvTranspose1d => conv_transpose_1d::compute(w, a),
        Op::ConvTranspose2d => conv_transpose_2d::compute(w, a),
        Op::Pool1d => pool_1d::compute(w, a),
        Op::Pool2d => pool_2d::compute(w, a),
        Op::AttentionContiguous => attention_contiguous::compute(w, a),
        Op::SsmConv => ssm_conv::compute(w, a),
        Op::SsmScan => ssm_scan::compute(w, a),
        Op::RwkvWkv6 => rwkv_wkv6::compute(w, a),
        Op::RwkvWkv7 => rwkv_wkv7::compute(w, a),
        Op::GatedLinearAttn => gated_linear_attn::compute(w, a),
        Op::GatedDeltaNet => gated_delta_net::compute(w, a),
        Op::SolveTri => solve_tri::compute(w, a),
    }
}

/// Whether a node is done by one thread sooner than a team meets.
pub fn is_small(a: &Args) -> bool {
    const FEW: usize = 4096;
    match a.op {
        Op::MulMat | Op::MulMatId | Op::Attention => false,
        Op::Conv1d | Op::Conv2d | Op::Conv3d | Op::ConvTranspose1d | Op::ConvTranspose2d => false,
        // Only the rows are touched, not the whole cache.
        Op::SetRows => a.src[1].is_none_or(|rows| rows.n_elems() <= FEW),
        Op::TopK | Op::SumRows => a.src[0].is_none_or(|x| x.n_elems() <= FEW),
        _ => a.dst.n_elems() <= FEW,
    }
}

/// About how many multiplications a node takes; 0 for ops that only pass over their operands.
pub fn work(node: &NodeView<'_>) -> u64 {
    let per_element = match (node.op(), node.src(0)) {
        (Some(Op::MulMat | Op::MulMatId), Some(w)) => w.ne()[0] as u64,
        (Some(Op::Conv1d | Op::Conv1dDw), Some(kernel)) => product(&kernel.ne()[..2]),
        (Some(Op::Conv2d | Op::Conv2dDw | Op::Conv3d), Some(kernel)) => product(&kernel.ne()[..3]),
        (Some(Op::ConvTranspose1d), Some(kernel)) => kernel.ne()[2] as u64,
        (Some(Op::ConvTranspose2d), Some(kernel)) => kernel.ne()[3] as u64,
        // Keys are counted as if the text were short: how long it is, is not known before the run.
        (Some(Op::Attention), _) => 64,
        _ => 0,
    };
    (node.dst().n_elements() as u64).saturating_mul(per_element)
}

fn product(dims: &[usize]) -> u64 {
    dims.iter().fold(1, |n, &dim| n.saturating_mul(dim as u64))
}

/// Bytes of the team's working memory that a node uses. Such a node meets within.
pub fn shared_bytes(a: &Args) -> usize {
    match a.op {
        Op::MulMat => mul_mat::shared_bytes(a),
        Op::MulMatId => mul_mat_id::shared_bytes(a),
        _ => 0,
    }
}

/// Operands of a node, bound to memory.
pub struct Args {
    /// What is computed.
    pub op: Op,
    /// Sources.
    pub src: [Option<Tensor>; 7],
    /// The result.
    pub dst: Tensor,
    params: [u8; 64],
    n_params: usize,
}

impl Args {
    /// Binds a node to its memory.
    pub fn bind(node: &NodeView<'_>) -> Result<Args> {
        let op = node.op().ok_or_else(|| Error::unsupported(format!("op {} is unknown", node.op_id())))?;
        supports(node).map_err(|reason| Error::unsupported(format!("{op}: {reason}")))?;
        let mut src = [None; 7];
        for (i, src) in src.iter_mut().enumerate() {
            *src = node.src(i).map(|t| Tensor::bind(&t)).transpose()?;
        }
        let bytes = node.params_bytes();
        let mut params = [0; 64];
        let n_params = bytes.len().min(params.len());
        params[..n_params].copy_from_slice(&bytes[..n_params]);
        Ok(Args { op, src, dst: Tensor::bind(&node.dst())?, params, n_params })
    }

    /// Whether a node of an equal graph has the same operands in the same places.
    pub fn is_bound_to(&self, node: &NodeView<'_>) -> bool {
        let mut sources = self.src.iter().enumerate();
        node.op() == Some(self.op)
            && node.params_bytes().starts_with(&self.params[..self.n_params])
            && self.dst.is_at(&node.dst())
            && sources.all(|(i, src)| match (src, node.src(i)) {
                (Some(src), Some(t)) => src.is_at(&t),
                (src, t) => src.is_none() && t.is_none(),
            })
    }

    /// Source `i`, which `supports` found present.
    pub fn arg(&self, i: usize) -> &Tensor {
        self.src[i].as_ref().unwrap_or(&self.dst)
    }

    /// The sources that are given.
    pub fn src(&self) -> impl Iterator<Item = &Tensor> {
        self.src.iter().flatten()
    }

    /// The params struct, read by its `from_bytes`.
    pub fn params<P: Default>(&self, from_bytes: fn(&[u8]) -> Option<P>) -> P {
        from_bytes(&self.params[..self.n_params]).unwrap_or_default()
    }
}

/// One thread of the team at one node.
pub struct Worker<'a> {
    /// This thread.
    pub index: usize,
    /// Threads at this node.
    pub n: usize,
    /// What kernels run with.
    pub isa: Isa,
    /// Waits for the others.
    pub meet: &'a dyn Fn(),
    /// Next piece of work of [`Worker::take`].
    pub next: &'a AtomicUsize,
    /// This thread's working memory.
    pub scratch: &'a mut Scratch,
    /// The team's working memory.
    pub shared: &'a Shared,
}

impl Worker<'_> {
    /// This thread's share of `0..n`.
    pub fn share(&self, n: usize) -> Range<usize> {
        n * self.index / self.n..n * (self.index + 1) / self.n
    }

    /// The next piece of 0..n that nobody has; who gets it changes no result.
    pub fn take(&self, n: usize) -> Option<usize> {
        let i = self.next.fetch_add(1, Ordering::Relaxed);
        (i < n).then_some(i)
    }

    /// This thread's share of a tensor's elements, as (row, elements of the row).
    pub fn pieces(&self, t: &Tensor) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        const PIECE: usize = 1024;
        let (n, per_row) = (t.ne[0], t.ne[0].div_ceil(PIECE));
        let share = self.share(t.n_rows() * per_row);
        share.map(move |i| {
            let start = i % per_row * PIECE;
            (i / per_row, start..(start + PIECE).min(n))
        })
    }
}
