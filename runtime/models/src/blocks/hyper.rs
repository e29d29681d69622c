//! Hyper-connections (arXiv 2409.19606): several residual streams side by side, [n_embd * n_stream, n]. Each part of a layer
//! reads a mix of them, and what it gives is added to each with a weight.

use super::sum_used;
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// Streams that all begin as `x` [n_embd, n_tokens].
pub(crate) fn streams(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let [n_embd, n, ..] = b.g.ne(x);
    let n_stream = b.cfg.hyper.n_stream;
    let one = b.g.reshape(x, &[n_embd, 1, n]);
    let all = b.g.repeat(one, &[n_embd, n_stream, n]);
    b.g.reshape(all, &[n_embd * n_stream, n])
}

/// The normed streams' mean, each element with a gate: [n_embd, n]; and the normed streams (Qwen 4).
pub(crate) fn gated_mix(b: &mut Builder<'_>, name: &str, x: Tensor) -> Result<[Tensor; 2]> {
    let hyper = &b.cfg.hyper;
    let normed = norm_each_stream(b, &format!("{name}_norm"), x)?; // [n_embd * n_stream, n]
    let low = b.matmul(&format!("{name}_down"), hyper.low_rank, normed)?;
    let low = b.g.scale(low, (hyper.n_stream as f32).recip());
    let low = b.g.silu(low);
    let gate = b.matmul(&format!("{name}_up"), b.g.ne(x)[0], low)?;
    let gate = b.g.sigmoid(gate);
    let gated = b.g.mul(normed, gate);
    let gated = by_stream(b, gated);
    let sum = sum_used(b, gated); // [n_embd, n]
    let mean = b.g.scale(sum, (hyper.n_stream as f32).recip());
    Ok([b.name(mean, name), normed])
}

/// Streams `x` plus `y` [n_embd, n], on each as much as the normed streams have it: 1 where they have nothing (Qwen 4).
pub(crate) fn gated_spread(
    b: &mut Builder<'_>,
    name: &str,
    normed: Tensor,
    y: Tensor,
    x: Tensor,
) -> Result<Tensor> {
    let n_stream = b.cfg.hyper.n_stream;
    let weights = b.matmul(&format!("{name}_inject"), n_stream, normed)?; // [n_stream, n]
    let weights = b.g.scale(weights, (n_stream as f32).recip());
    let weights = b.g.sigmoid(weights);
    let weights = b.g.scale(weights, 2.0);
    let spread = outer(b, y, weights);
    let x = by_stream(b, x);
    let sum = b.g.add(x, spread);
    Ok(flat(b, sum))
}

/// y [n_embd, n] on each stream, times its weight of `weights` [n_stream, n]: [n_embd, n_stream, n].
fn outer(b: &mut Builder<'_>, y: Tensor, weights: Tensor) -> Tensor {
    let ([n_embd, n, ..], [n_stream, ..]) = (b.g.ne(y), b.g.ne(weights));
    let y = b.g.reshape(y, &[n_embd, 1, n]);
    let y = b.g.repeat(y, &[n_embd, n_stream, n]);
    let weights = b.g.reshape(weights, &[1, n_stream, n]);
    b.g.mul(y, weights)
}

/// Norm of each stream with weights of its own, which files have as [n_embd, n_stream] or as one row.
pub(super) fn norm_each_stream(b: &mut Builder<'_>, name: &str, x: Tensor) -> Result<Tensor> {
    let (n_embd, n_stream) = (b.cfg.n_embd, b.cfg.hyper.n_stream);
    let streams = by_stream(b, x);
    let y = b.plain_norm(name, streams);
    let path = format!("{name}.weight");
    let weight = match b.dims(&path) {
        Some([_, 1, 1, 1]) => {
            let row = b.weight(&path, &[n_embd * n_stream], Role::Norm)?;
            b.g.reshape(row, &[n_embd, n_stream])
        }
        _ => b.weight(&path, &[n_embd, n_stream], Role::Norm)?,
    };
    let y = b.g.mul(y, weight);
    Ok(flat(b, y))
}

/// [n_embd, n_stream, n].
pub(super) fn by_stream(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let [all, n, ..] = b.g.ne(x);
    let n_stream = b.cfg.hyper.n_stream;
    b.g.reshape(x, &[all / n_stream, n_stream, n])
}

/// [n_embd * n_stream, n].
pub(super) fn flat(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let [n_embd, n_stream, n, _] = b.g.ne(x);
    b.g.reshape(x, &[n_embd * n_stream, n])
}
