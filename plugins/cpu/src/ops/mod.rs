//! The ops, one file each: `supports` says which nodes it runs, `compute` is one thread's part of the work.

pub mod attention;
mod attention_tile;
pub mod binary;
pub mod check;
pub mod copy;
pub mod get_rows;
pub mod glu;
pub mod layer_norm;
pub mod moe_weights;
pub mod mul_mat;
pub mod mul_mat_id;
pub mod paged_mask;
pub mod paging;
pub mod params;
pub mod product;
pub mod rms_norm;
pub mod rope;
pub mod rows;
pub mod scale;
pub mod set_rows;
pub mod soft_max;
pub mod sum_rows;
pub mod top_k;
pub mod unary;

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
    params::supports(op, node)?;
    match op {
        Op::GetRows => get_rows::supports(node),
        Op::SetRows => set_rows::supports(node),
        Op::MulMat => mul_mat::supports(node),
        Op::MulMatId => mul_mat_id::supports(node),
        Op::Add | Op::Sub | Op::Mul | Op::Div => binary::supports(node),
        Op::Scale => scale::supports(node),
        Op::Silu | Op::Gelu | Op::GeluErf | Op::GeluQuick | Op::Relu | Op::Tanh | Op::Sigmoid => {
            unary::supports(node)
        }
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
        Op::Add | Op::Sub | Op::Mul | Op::Div => binary::compute(w, a),
        Op::Scale => scale::compute(w, a),
        Op::Silu | Op::Gelu | Op::GeluErf | Op::GeluQuick | Op::Relu | Op::Tanh | Op::Sigmoid => {
            unary::compute(w, a)
        }
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
    }
}

/// Whether a node is done by one thread sooner than a team meets.
pub fn is_small(a: &Args) -> bool {
    const FEW: usize = 4096;
    match a.op {
        Op::MulMat | Op::MulMatId | Op::Attention => false,
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
        // Keys are counted as if the text were short: how long it is, is not known before the run.
        (Some(Op::Attention), _) => 64,
        _ => 0,
    };
    (node.dst().n_elements() as u64).saturating_mul(per_element)
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
