//! Hyper-connections whose elements have gates of their own (Qwen 4).

use super::hyper::{by_stream, flat, outer};
use super::sum_used;
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// The normed streams' mean, each element with a gate: [n_embd, n]; and the normed streams.
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

/// Streams `x` plus `y` [n_embd, n], on each as much as the normed streams have it: 1 where they have nothing.
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
