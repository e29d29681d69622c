//! What a node costs: how many threads it is worth.

use super::Args;
use llmrt_plugin::{NodeView, Op};

/// Whether one thread computes a node in less time than a barrier of the team takes.
pub fn is_small(a: &Args) -> bool {
    const FEW: usize = 4096;
    match a.op {
        Op::MulMat | Op::MulMatId | Op::MulMatSparse | Op::MulMatT | Op::OutProd => false,
        Op::Attention | Op::AttentionContiguous | Op::SparseAttention | Op::PagedScores => false,
        Op::Conv1d | Op::Conv2d | Op::Conv3d | Op::ConvTranspose1d | Op::ConvTranspose2d => false,
        // Only the rows are touched, not the whole cache.
        Op::SetRows => a.src[1].is_none_or(|rows| rows.n_elems() <= FEW),
        Op::TopK | Op::SumRows | Op::Mean | Op::Argmax => a.src[0].is_none_or(|x| x.n_elems() <= FEW),
        _ => a.dst.n_elems() <= FEW,
    }
}

/// About how many multiplications a node takes; 0 for ops that only pass over their operands.
pub fn work(node: &NodeView<'_>) -> u64 {
    let per_element = match (node.op(), node.src(0)) {
        (Some(Op::MulMat | Op::MulMatId | Op::MulMatSparse), Some(w)) => w.ne()[0] as u64,
        (Some(Op::Conv1d | Op::Conv1dDw), Some(kernel)) => product(&kernel.ne()[..2]),
        (Some(Op::Conv2d | Op::Conv2dDw | Op::Conv3d), Some(kernel)) => product(&kernel.ne()[..3]),
        (Some(Op::ConvTranspose1d), Some(kernel)) => kernel.ne()[2] as u64,
        (Some(Op::ConvTranspose2d), Some(kernel)) => kernel.ne()[3] as u64,
        // Keys are counted as if the text were short: how long it is, is not known before the run.
        (Some(Op::Attention), _) => 64,
        (Some(Op::SparseAttention), _) => node.src(6).map_or(0, |positions| 2 * positions.ne()[0] as u64),
        (Some(Op::PagedScores), Some(q)) => product(&q.ne()[..2]),
        (Some(Op::OutProd | Op::MulMatT), Some(a)) => a.ne()[1] as u64,
        (Some(Op::AttentionContiguous), _) => node.src(1).map_or(0, |k| 2 * k.ne()[1] as u64),
        // A pass over the state of S × S elements for S of the result.
        (
            Some(Op::RwkvWkv6 | Op::RwkvWkv7 | Op::GatedLinearAttn | Op::GatedDeltaNet | Op::SsmScan),
            Some(x),
        ) => x.ne()[0] as u64,
        (Some(Op::SsmConvRagged), _) => node.src(1).map_or(0, |kernel| kernel.ne()[0] as u64),
        (Some(Op::SolveTri), Some(a)) => a.ne()[0] as u64 / 2,
        _ => 0,
    };
    (node.dst().n_elements() as u64).saturating_mul(per_element)
}

fn product(dims: &[usize]) -> u64 {
    dims.iter().fold(1, |n, &dim| n.saturating_mul(dim as u64))
}
