//! What recurrent mixers share: states by sequence, of which a step reads one slot and writes another, and the short
//! convolution.

use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_graph::tensor::{contiguous_strides, shape};
use llmrt_graph::{Role, Tensor};

/// Which states a step reads and writes, and which of its tokens are of which sequence.
pub(super) struct Sequences {
    pub reads: Tensor,
    pub writes: Tensor,
    pub query_starts: Tensor,
}

/// The sequences of the step.
pub(super) fn sequences(b: &mut Builder<'_>) -> Sequences {
    let slots = b.input(Input::StateSlots);
    Sequences {
        reads: b.g.slice(slots, 1, 0, 1),
        writes: b.g.slice(slots, 1, 1, 1),
        query_starts: b.input(Input::QueryStarts),
    }
}

/// The state of a convolution of `n` channels: the columns before a sequence's next token.
pub(super) fn conv_state(name: &'static str, n_taps: u64, n: u64) -> StateTensor {
    StateTensor { name, row: (n_taps - 1) * n }
}

/// Causal convolution of each channel of `x` [n, n_tokens] with the kernel of that name, which has these dims in the file:
/// [n, n_tokens]. A bias is added if the file has one.
pub(super) fn convolution(
    b: &mut Builder<'_>,
    name: &str,
    dims: &[u64],
    state: Tensor,
    of: &Sequences,
    x: Tensor,
) -> Result<Tensor> {
    let (n, n_taps) = (b.g.ne(x)[0], dims[0]);
    let kernel = b.weight(&format!("{name}.weight"), dims, Role::Other)?;
    let kernel = if dims.len() > 2 { b.g.reshape(kernel, &[n_taps, n]) } else { kernel };
    let bias = b.optional(&format!("{name}.bias"), &[n], Role::Bias)?;
    let y = convolved(b, kernel, state, of, x);
    Ok(bias.map_or(y, |bias| b.g.add(y, bias)))
}

/// Causal convolution of each channel of `x` [n, n_tokens] with `kernel` [n_taps, n]: [n, n_tokens].
pub(super) fn convolved(
    b: &mut Builder<'_>,
    kernel: Tensor,
    state: Tensor,
    of: &Sequences,
    x: Tensor,
) -> Tensor {
    let ([n, n_tokens, ..], [n_taps, ..]) = (b.g.ne(x), b.g.ne(kernel));
    let columns = b.g.reshape(state, &[n, n_taps - 1, b.batch.n_state_slots]);
    let both = b.g.ssm_conv_ragged(x, kernel, columns, of.reads, of.query_starts);
    outputs_and_states(b, both, state, of, &[n, n_tokens])
}

/// Of each token its row of `x` [n, n_tokens] and those before it: [n, n_rows, n_tokens]. `state` has the n_rows - 1 rows before
/// a sequence's next token; before its first are rows of `fill`.
pub(super) fn windows(
    b: &mut Builder<'_>,
    state: Tensor,
    of: &Sequences,
    n_rows: u64,
    fill: f32,
    x: Tensor,
) -> Tensor {
    let [n, n_tokens, ..] = b.g.ne(x);
    let rows = b.g.reshape(state, &[n, n_rows - 1, b.batch.n_state_slots]);
    let both = b.g.token_windows(x, rows, of.reads, of.query_starts, fill);
    outputs_and_states(b, both, state, of, &[n, n_rows, n_tokens])
}

/// The outputs of an op whose result is them and then a new state for each sequence; the states go to their slots.
pub(super) fn outputs_and_states(
    b: &mut Builder<'_>,
    both: Tensor,
    state: Tensor,
    of: &Sequences,
    dims: &[u64],
) -> Tensor {
    let n_outputs = dims.iter().product();
    let states = part(b, both, n_outputs, &[b.g.ne(state)[0], b.batch.n_seqs]);
    b.g.set_rows(state, states, of.writes);
    part(b, both, 0, dims)
}

/// Elements of an F32 result, from `start` on, as a tensor of these dims.
fn part(b: &mut Builder<'_>, t: Tensor, start: u64, dims: &[u64]) -> Tensor {
    let ne = shape(dims);
    let nb = contiguous_strides(DType::F32, ne).unwrap_or(b.g.def(t).nb);
    b.g.view(t, ne, nb, start * size_of::<f32>() as u64)
}
