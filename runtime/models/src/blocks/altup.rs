//! Alternating updates (arXiv 2301.13310): hidden states come in several copies, of which each layer computes one and predicts
//! the others. Copies are dim 2 of a tensor [n_embd, n_tokens, n_copies]; the first is the one that is computed.

use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// How many copies.
const N_COPIES: u64 = 4;

/// The copies of embeddings `x` [n_embd, n_tokens]: `x` and products of it, as long as it is.
pub(crate) fn copies(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (n_embd, [_, n_tokens, ..]) = (b.cfg.n_embd, b.g.ne(x));
    let each = b.g.repeat(x, &[n_embd, n_tokens, N_COPIES - 1]);
    let others = product(b, "altup_proj", each)?;
    let others = as_long_as(b, x, others);
    let all = b.g.concat(x, others, 2);
    Ok(b.name(all, "inp_stacked"))
}

/// The mean of the first copy and of products of the others, which are made as long as it: [n_embd, n_tokens].
pub(crate) fn merged(b: &mut Builder<'_>, copies: Tensor) -> Result<Tensor> {
    let first = copy(b, copies, 0);
    let others = b.g.slice(copies, 2, 1, N_COPIES - 1);
    let others = product(b, "altup_unembd_proj", others)?;
    let others = as_long_as(b, first, others);
    let sum = (0..N_COPIES - 1).fold(first, |sum, i| {
        let other = copy(b, others, i);
        b.g.add(sum, other)
    });
    Ok(b.g.scale(sum, 1.0 / N_COPIES as f32))
}

/// Predictions of all copies, made of all copies: copies plus sums of them, by weights that the first one sets.
pub(crate) fn predictions(b: &mut Builder<'_>, copies: Tensor) -> Result<Tensor> {
    let n_tokens = b.g.ne(copies)[1];
    let first = copy(b, copies, 0);
    let modes = modes(b, first)?;
    let weights = b.linear("altup_predict_coef", N_COPIES * N_COPIES, modes)?;
    let weights = b.g.reshape(weights, &[N_COPIES, N_COPIES, n_tokens]);
    let by_token = b.g.permute(copies, [2, 0, 1, 3]);
    let by_token = b.g.cont(by_token); // [n_copies, n_embd, n_tokens]
    let sums = b.g.mul_mat(by_token, weights); // [n_embd, n_copies, n_tokens]
    let sums = b.g.permute(sums, [0, 2, 1, 3]);
    Ok(b.add("predictions", copies, sums))
}

/// Predictions, each moved by what the first one turned out to miss of `computed` [n_embd, n_tokens].
pub(crate) fn corrected(b: &mut Builder<'_>, predictions: Tensor, computed: Tensor) -> Result<Tensor> {
    let n_tokens = b.g.ne(computed)[1];
    let modes = modes(b, computed)?;
    let weights = b.linear("altup_correct_coef", N_COPIES, modes)?; // [n_copies, n_tokens]
    let weights = b.g.scale_bias(weights, 1.0, 1.0);
    let weights = b.g.permute(weights, [1, 0, 2, 3]);
    let weights = b.g.cont(weights);
    let weights = b.g.reshape(weights, &[1, n_tokens, N_COPIES]);

    let first = copy(b, predictions, 0);
    let missed = b.g.sub(computed, first);
    let missed = b.g.repeat(missed, &[b.cfg.n_embd, n_tokens, N_COPIES]);
    let moves = b.g.mul(missed, weights);
    Ok(b.add("corrected", moves, predictions))
}

/// `more` [n_embd, n_tokens] added to all copies but the first.
pub(crate) fn added_to_others(b: &mut Builder<'_>, copies: Tensor, more: Tensor) -> Tensor {
    let first = copy(b, copies, 0);
    let others = b.g.slice(copies, 2, 1, N_COPIES - 1);
    let others = b.g.add(others, more);
    b.g.concat(first, others, 2)
}

/// One of the copies: [n_embd, n_tokens].
pub(crate) fn copy(b: &mut Builder<'_>, copies: Tensor, i: u64) -> Tensor {
    b.g.slice(copies, 2, i, 1)
}

/// What the weights of predictions and corrections are made of: [N_COPIES, n_tokens].
fn modes(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("altup_router_norm", x)?;
    let h = b.g.scale(h, 1.0 / b.cfg.n_embd as f32);
    let modes = b.linear("altup_router", N_COPIES, h)?;
    Ok(b.g.tanh(modes))
}

/// A matrix for each copy but the first.
fn product(b: &mut Builder<'_>, name: &str, copies: Tensor) -> Result<Tensor> {
    let n_embd = b.cfg.n_embd;
    let w = b.weight(&format!("{name}.weight"), &[n_embd, n_embd, N_COPIES - 1], Role::Matrix)?;
    Ok(b.g.mul_mat(w, copies))
}

/// `others`, times what makes them as long as `x`.
fn as_long_as(b: &mut Builder<'_>, x: Tensor, others: Tensor) -> Tensor {
    let [target, now] = [x, others].map(|t| {
        let squares = b.g.sqr(t);
        let sum = b.g.sum_rows(squares);
        b.g.sqrt(sum) // [1, n_tokens, ..]
    });
    let y = b.g.mul(others, target);
    b.g.div(y, now)
}
