//! A short convolution between two gates (LFM2, arXiv 2511.23404): its state is a sequence's last columns.

use super::recurrent::{conv_state, convolution, sequences};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::Tensor;

/// out(c · convolution(b · x)), with b, c and x from one matrix, and the residual stream `residual`: [n_embd, n], in the
/// last layer the outputs alone.
pub(crate) fn short_conv_mixer(b: &mut Builder<'_>, h: Tensor, residual: Tensor) -> Result<[Tensor; 2]> {
    let (n_embd, n_taps) = (b.cfg.n_embd, b.cfg.ssm.n_taps);
    let all = b.linear("shortconv.in_proj", 3 * n_embd, h)?;
    let [before, after, x] = [0, 1, 2].map(|i| b.g.slice(all, 0, i * n_embd, n_embd)); // [n_embd, n_tokens]

    let [state] = b.states([conv_state("conv_state", n_taps, n_embd)]);
    let of = sequences(b);
    let x = b.g.mul(before, x);
    let y = convolution(b, "shortconv.conv", &[n_taps, n_embd], state, &of, x)?;
    let [y, after, residual] = b.keep_outputs([y, after, residual]); // [n_embd, n]
    let y = b.g.mul(after, y);
    Ok([b.linear("shortconv.out_proj", n_embd, y)?, residual])
}
