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

/// Streams mixed by one weight each, [n_embd, n], and how a part's result then goes to them.
pub(crate) fn weighted_mix(b: &mut Builder<'_>, name: &str, x: Tensor) -> Result<(Tensor, Spread)> {
    let hyper = &b.cfg.hyper;
    let n = hyper.n_stream;
    let parts = [(0, n), (n, n), (2 * n, n * n)];
    let n_parts = if hyper.n_sinkhorn > 0 { 3 } else { 2 };
    let logits = stream_logits(b, name, &parts[..n_parts], x)?;

    let [read, write] = [logits[0], logits[1]].map(|logits| b.g.sigmoid(logits)); // [n_stream, n]
    let read = b.g.scale_bias(read, 1.0, hyper.eps);
    let write = b.g.scale_bias(write, hyper.scale, hyper.bias);
    let exchange = logits.get(2).map(|&logits| doubly_stochastic(b, logits));
    let y = weighted_sum(b, x, read);
    Ok((b.name(y, name), Spread { write, exchange }))
}

/// Streams mixed by one weight each, with no part after it.
pub(crate) fn last_mix(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let hyper = &b.cfg.hyper;
    let logits = stream_logits(b, "output_hc", &[(0, hyper.n_stream)], x)?;
    let weights = b.g.sigmoid(logits[0]);
    let weights = b.g.scale_bias(weights, 1.0, hyper.eps);
    let y = weighted_sum(b, x, weights);
    Ok(b.name(y, "hc_head"))
}

/// The streams' mean: [n_embd, n].
pub(crate) fn mean_of_streams(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let x = by_stream(b, x);
    let sum = sum_used(b, x);
    b.g.scale(sum, (b.cfg.hyper.n_stream as f32).recip())
}

/// How a part's result goes to the streams.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    /// How much of it goes to each: [n_stream, n].
    write: Tensor,
    /// How much of each stream goes to each: [n_stream, n_stream, n], where it goes to first. Without it, each stays.
    exchange: Option<Tensor>,
}

impl Spread {
    /// In the last layer, of the outputs alone.
    pub(crate) fn of_outputs(self, b: &mut Builder<'_>) -> Spread {
        let [write] = b.keep_outputs([self.write]);
        let exchange = self.exchange.map(|exchange| {
            let [n_stream, _, n, _] = b.g.ne(exchange);
            let rows = b.g.reshape(exchange, &[n_stream * n_stream, n]);
            let [rows] = b.keep_outputs([rows]);
            let n = b.g.ne(rows)[1];
            b.g.reshape(rows, &[n_stream, n_stream, n])
        });
        Spread { write, exchange }
    }

    /// Streams `x` with `y` [n_embd, n]: [n_embd * n_stream, n].
    pub(crate) fn add(self, b: &mut Builder<'_>, name: &str, y: Tensor, x: Tensor) -> Tensor {
        let all = by_stream(b, x);
        let own = outer(b, y, self.write); // [n_embd, n_stream, n]
        let sum = match self.exchange {
            None => b.g.add(all, own),
            Some(exchange) => (0..b.cfg.hyper.n_stream).fold(own, |sum, stream| {
                let from = one_stream(b, all, stream);
                let weights = one_stream(b, exchange, stream); // [n_stream, n]
                let given = outer(b, from, weights);
                b.g.add(sum, given)
            }),
        };
        let x = flat(b, sum);
        b.name(x, name)
    }
}

/// Logits of the weights that parts of the matrix give, so many from so many on, each part with a scale of its own.
fn stream_logits(b: &mut Builder<'_>, name: &str, parts: &[(u64, u64)], x: Tensor) -> Result<Vec<Tensor>> {
    let n_all = parts.iter().map(|(_, n)| n).sum();
    let normed = b.g.rms_norm(x, None, b.cfg.norm_eps);
    let all = b.matmul(&format!("{name}_fn"), n_all, normed)?; // [n_all, n]
    let scale = b.weight(&format!("{name}_scale.weight"), &[parts.len() as u64], Role::Other)?;
    let base = b.weight(&format!("{name}_base.weight"), &[n_all], Role::Bias)?;
    let part = |b: &mut Builder<'_>, i: usize, (start, n): (u64, u64)| {
        let part = b.g.slice(all, 0, start, n);
        let part = b.g.cont(part);
        let (scale, base) = (b.g.slice(scale, 0, i as u64, 1), b.g.slice(base, 0, start, n));
        let part = b.g.mul(part, scale);
        b.g.add(part, base)
    };
    Ok(parts.iter().enumerate().map(|(i, &range)| part(b, i, range)).collect())
}

/// A matrix [n_stream, n_stream, n] of logits [n_stream * n_stream, n] whose rows and columns each have about the sum 1
/// (Sinkhorn's iteration).
fn doubly_stochastic(b: &mut Builder<'_>, logits: Tensor) -> Tensor {
    let (n_stream, n) = (b.cfg.hyper.n_stream, b.g.ne(logits)[1]);
    let logits = b.g.reshape(logits, &[n_stream, n_stream, n]);
    let rows = b.g.soft_max(logits, None, 1.0);
    let rows = b.g.scale_bias(rows, 1.0, b.cfg.hyper.eps);
    let mut columns = transposed(b, rows);
    columns = with_sum_1(b, columns);
    for _ in 1..b.cfg.hyper.n_sinkhorn {
        let rows = transposed(b, columns);
        let rows = with_sum_1(b, rows);
        columns = transposed(b, rows);
        columns = with_sum_1(b, columns);
    }
    transposed(b, columns)
}

fn transposed(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let x = b.g.permute(x, [1, 0, 2, 3]);
    b.g.cont(x)
}

/// Rows divided by their sum plus a small number.
fn with_sum_1(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let sums = b.g.sum_rows(x);
    let sums = b.g.scale_bias(sums, 1.0, b.cfg.hyper.eps);
    b.g.div(x, sums)
}

/// Σ over streams of weight · stream, weights [n_stream, n]: [n_embd, n].
fn weighted_sum(b: &mut Builder<'_>, x: Tensor, weights: Tensor) -> Tensor {
    let [n_stream, n, ..] = b.g.ne(weights);
    let weights = b.g.reshape(weights, &[1, n_stream, n]);
    let streams = by_stream(b, x);
    let parts = b.g.mul(streams, weights);
    sum_used(b, parts)
}

/// Stream `i` of [n, n_stream, n_tokens]: [n, n_tokens].
fn one_stream(b: &mut Builder<'_>, x: Tensor, i: u64) -> Tensor {
    let [n, _, n_tokens, _] = b.g.ne(x);
    let one = b.g.slice(x, 1, i, 1);
    let one = b.g.cont(one);
    b.g.reshape(one, &[n, n_tokens])
}

/// y [n_embd, n] on each stream, times its weight of `weights` [n_stream, n]: [n_embd, n_stream, n].
pub(super) fn outer(b: &mut Builder<'_>, y: Tensor, weights: Tensor) -> Tensor {
    let ([n_embd, n, ..], [n_stream, ..]) = (b.g.ne(y), b.g.ne(weights));
    let y = b.g.reshape(y, &[n_embd, 1, n]);
    let y = b.g.repeat(y, &[n_embd, n_stream, n]);
    let weights = b.g.reshape(weights, &[1, n_stream, n]);
    b.g.mul(y, weights)
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
