//! Blocks of positions as one row each: the weighted sum of their rows, each element with weights of its own.

use super::recurrent::{sequences, windows};
use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_graph::{Role, Tensor};

/// Σ over i of softmax(score)[e, i] · value[e, i], of windows [n, n_rows, n_tokens]: [n, n_tokens].
pub(super) fn pooled(b: &mut Builder<'_>, value: Tensor, score: Tensor) -> Tensor {
    let [n, _, n_tokens, _] = b.g.ne(value);
    let [value, score] = [value, score].map(|t| {
        let t = b.g.permute(t, [1, 0, 2, 3]);
        b.g.cont(t) // [n_rows, n, n_tokens]
    });
    let weights = b.g.soft_max(score, None, 1.0);
    let parts = b.g.mul(value, weights);
    let sums = b.g.sum_rows(parts);
    b.g.reshape(sums, &[n, n_tokens])
}

/// Windows of values and of scores, [n, n_rows, n_tokens], in which what is before the first token has no weight.
pub(super) fn windows_of(
    b: &mut Builder<'_>,
    [values, scores]: [Tensor; 2],
    n_rows: u64,
    [value, score]: [Tensor; 2],
) -> [Tensor; 2] {
    let of = sequences(b);
    [windows(b, values, &of, n_rows, 0.0, value), windows(b, scores, &of, n_rows, f32::NEG_INFINITY, score)]
}

/// Scores [n, n_tokens] plus what the file has for each place in a block of `stride` positions.
pub(super) fn add_offsets(b: &mut Builder<'_>, name: &str, stride: u64, score: Tensor) -> Result<Tensor> {
    let table = b.weight(&format!("{name}.weight"), &[b.g.ne(score)[0], stride], Role::Other)?;
    let blocks = block_of(b, stride, 0.0); // [1, n_tokens]
    let starts = b.g.scale(blocks, stride as f32);
    let positions = positions(b);
    let starts = b.g.reshape(starts, &[b.batch.n_tokens]);
    let places = b.g.sub(positions, starts);
    let places = b.g.cast(places, DType::I32);
    let offsets = b.g.get_rows(table, places);
    Ok(b.g.add(score, offsets))
}

/// The block that each token's position plus `offset` is in, [1, n_tokens].
pub(super) fn block_of(b: &mut Builder<'_>, stride: u64, offset: f32) -> Tensor {
    let positions = positions(b);
    let at = b.g.scale_bias(positions, 1.0, offset);
    // A quotient, since a product with 1 / stride may be below the whole number that it should reach.
    let stride = b.g.fill(at, stride as f32);
    let blocks = b.g.div(at, stride);
    let blocks = b.g.floor(blocks);
    b.g.reshape(blocks, &[1, b.batch.n_tokens])
}

/// `ids` [n, n_tokens] that are below `end` [1, n_tokens]; -1 in place of the others.
pub(super) fn only_before(b: &mut Builder<'_>, ids: Tensor, end: Tensor) -> Tensor {
    let past = b.g.sub(ids, end);
    let left = b.g.scale_bias(past, -1.0, -0.5);
    let is_before = b.g.step(left);
    let from_1 = b.g.scale_bias(ids, 1.0, 1.0);
    let kept = b.g.mul(from_1, is_before);
    b.g.scale_bias(kept, 1.0, -1.0)
}

/// The tokens' positions as F32.
pub(super) fn positions(b: &mut Builder<'_>) -> Tensor {
    let positions = b.input(Input::Positions);
    b.g.cast(positions, DType::F32)
}
