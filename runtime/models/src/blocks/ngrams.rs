//! Embeddings of n-grams: rows of a large table, found by a hash of the last tokens, that one layer adds to the residual
//! streams.

use super::gated_streams::norm_each_stream;
use super::hyper::{by_stream, flat};
use super::recurrent::{conv_state, convolved, sequences};
use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Padding, Role, Tensor};

/// The rows of each token's n-grams, side by side: [n_embd_ngram * n_rows, n_tokens].
pub(crate) fn ngram_embedding(b: &mut Builder<'_>) -> Result<Option<Tensor>> {
    let cfg = &b.cfg.ngrams;
    if cfg.n_rows() == 0 {
        return Ok(None);
    }
    const NAME: &str = "per_layer_token_embd.weight";
    let n_table = b.dims(NAME).map_or(1, |dims| dims[1]);
    let table = b.weight(NAME, &[cfg.n_embd, n_table], Role::Embedding)?;
    let (n_rows, n_tokens) = (cfg.n_rows() as u64, b.batch.n_tokens);
    let rows = b.input(Input::NgramRows(n_rows as u32));
    let rows = b.g.reshape(rows, &[n_rows * n_tokens]);
    let x = b.g.get_rows(table, rows);
    let x = b.g.reshape(x, &[cfg.n_embd * n_rows, n_tokens]);
    Ok(Some(b.name(x, "ple_embd")))
}

/// Streams `x` [n_embd * n_stream, n_tokens] plus, on each, as much of the n-grams' value as its key suits the stream; and a
/// convolution of that.
pub(crate) fn add_ngrams(b: &mut Builder<'_>, x: Tensor, ngrams: Tensor) -> Result<Tensor> {
    let ([n_all, n_tokens, ..], n_embd) = (b.g.ne(x), b.cfg.n_embd);
    let key = b.matmul("ple_key", n_all, ngrams)?;
    let value = b.matmul("ple_value", n_embd, ngrams)?;
    let key = norm_each_stream(b, "ple_norm_key", key)?;
    let query = norm_each_stream(b, "ple_norm_query", x)?;
    let gate = gate(b, key, query); // [1, n_stream, n_tokens]

    let n_stream = b.cfg.hyper.n_stream;
    let value = b.g.reshape(value, &[n_embd, 1, n_tokens]);
    let value = b.g.repeat(value, &[n_embd, n_stream, n_tokens]);
    let gated = b.g.mul(value, gate);
    let gated = flat(b, gated);
    let gated = b.name(gated, "ple_gated_value");

    let normed = norm_each_stream(b, "ple_norm_conv", gated)?;
    let y = dilated_convolution(b, normed)?;
    let y = b.g.silu(y);
    let y = b.g.add(gated, y);
    Ok(b.add("ple_out", x, y))
}

/// sigmoid(±√|q · k / √n_embd|), with the sign of the product.
fn gate(b: &mut Builder<'_>, key: Tensor, query: Tensor) -> Tensor {
    let products = b.g.mul(key, query);
    let products = by_stream(b, products);
    let dots = b.g.sum_rows(products);
    let dots = b.g.scale(dots, (b.cfg.n_embd as f32).sqrt().recip());
    let sign = b.g.sgn(dots);
    let size = b.g.abs(dots);
    let size = b.g.clamp(size, 1e-6, f32::INFINITY);
    let size = b.g.sqrt(size);
    let signed = b.g.mul(sign, size);
    b.g.sigmoid(signed)
}

/// Causal convolution of each channel, whose taps are as far apart as the longest n-gram has tokens: one with zeros between
/// them.
fn dilated_convolution(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (n, n_taps, step) = (b.g.ne(x)[0], b.cfg.ngrams.n_taps, b.cfg.ngrams.n() as u64);
    let taps = b.weight("ple_conv1d.weight", &[n_taps, n], Role::Other)?;
    let taps = b.g.reshape(taps, &[1, n_taps, n]);
    let spaced = b.g.pad(taps, [0; 4], [step as u32 - 1, 0, 0, 0], Padding::Constant(0.0));
    let spaced = b.g.reshape(spaced, &[step * n_taps, n]);
    let n_all = (n_taps - 1) * step + 1;
    let kernel = b.g.slice(spaced, 0, 0, n_all);

    let [state] = b.states([conv_state("ple_state", n_all, n)]);
    let of = sequences(b);
    let y = convolved(b, kernel, state, &of, x);
    Ok(b.name(y, "ple_conv"))
}
