//! Selective state space models (Mamba 2, arXiv 2405.21060): a short convolution and a scan, each with a state per sequence.

use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_graph::tensor::{contiguous_strides, shape};
use llmrt_graph::{Activation, Role, Tensor};

/// Which states a step reads and writes, and which of its tokens are of which sequence.
struct Sequences {
    reads: Tensor,
    writes: Tensor,
    query_starts: Tensor,
}

/// The scan of `x` [n_embd, n_tokens], and the gate that its result is multiplied with: both [n_inner, n_tokens].
pub(crate) fn mamba2(b: &mut Builder<'_>, x: Tensor) -> Result<[Tensor; 2]> {
    let ssm = &b.cfg.ssm;
    let (n_inner, n_conv) = (ssm.n_inner, ssm.n_conv());
    let all = b.linear("ssm_in", n_inner + n_conv + ssm.n_head, x)?;
    let gate = b.g.slice(all, 0, 0, n_inner);
    let xbc = b.g.slice(all, 0, n_inner, n_conv);
    let dt = b.g.slice(all, 0, n_inner + n_conv, ssm.n_head);

    let [conv_state, scan_state] = b.states([
        StateTensor { name: "conv_state", row: ssm.conv_row() },
        StateTensor { name: "scan_state", row: ssm.scan_row() },
    ]);
    let sequences = sequences(b);
    let xbc = convolution(b, conv_state, &sequences, xbc)?; // [n_conv, n_tokens]
    let y = scan(b, scan_state, &sequences, xbc, dt)?;
    Ok([y, gate])
}

/// (y · silu(gate)), normed in groups, mixed: [n_embd, n].
pub(crate) fn mamba2_output(b: &mut Builder<'_>, y: Tensor, gate: Tensor) -> Result<Tensor> {
    let (n_inner, n_group, n) = (b.cfg.ssm.n_inner, b.cfg.ssm.n_group, b.g.ne(y)[1]);
    let per_group = n_inner / n_group;
    let y = b.g.glu(Activation::Silu, gate, Some(y));
    let y = b.g.reshape(y, &[per_group, n_group, n]);
    let weight = b.weight("ssm_norm.weight", &[per_group, n_group], Role::Norm)?;
    let y = b.g.rms_norm(y, None, b.cfg.norm_eps);
    let y = b.g.mul(y, weight);
    let y = b.name(y, "ssm_norm");
    let y = b.g.reshape(y, &[n_inner, n]);
    b.linear("ssm_out", b.cfg.n_embd, y)
}

fn sequences(b: &mut Builder<'_>) -> Sequences {
    let slots = b.input(Input::StateSlots);
    Sequences {
        reads: b.g.slice(slots, 1, 0, 1),
        writes: b.g.slice(slots, 1, 1, 1),
        query_starts: b.input(Input::QueryStarts),
    }
}

/// silu(convolution of each channel + bias): [n_conv, n_tokens].
fn convolution(b: &mut Builder<'_>, state: Tensor, of: &Sequences, x: Tensor) -> Result<Tensor> {
    let ([n_conv, n_tokens, ..], n_taps) = (b.g.ne(x), b.cfg.ssm.n_taps);
    let kernel = b.weight("ssm_conv1d.weight", &[n_taps, n_conv], Role::Other)?;
    let bias = b.weight("ssm_conv1d.bias", &[n_conv], Role::Bias)?;
    let columns = b.g.reshape(state, &[n_conv, n_taps - 1, b.batch.n_state_slots]);
    let both = b.g.ssm_conv_ragged(x, kernel, columns, of.reads, of.query_starts);
    let y = outputs_and_states(b, both, state, of, &[n_conv, n_tokens]);
    let y = b.g.add(y, bias);
    let y = b.g.silu(y);
    Ok(b.name(y, "ssm_conv"))
}

/// The scan over x, B and C with the step sizes `dt`, plus D·x: [n_inner, n_tokens].
fn scan(b: &mut Builder<'_>, state: Tensor, of: &Sequences, xbc: Tensor, dt: Tensor) -> Result<Tensor> {
    let (ssm, n_tokens) = (&b.cfg.ssm, b.g.ne(xbc)[1]);
    let head_dim = ssm.n_inner / ssm.n_head;
    let n_bc = ssm.n_group * ssm.n_state;
    let [x, in_b, in_c] = [
        (0, ssm.n_inner, ssm.n_head),
        (ssm.n_inner, n_bc, ssm.n_group),
        (ssm.n_inner + n_bc, n_bc, ssm.n_group),
    ]
    .map(|(start, n, n_heads)| {
        let part = b.g.slice(xbc, 0, start, n);
        b.g.split_heads(part, n_heads)
    });
    let bias = b.weight("ssm_dt.bias", &[ssm.n_head], Role::Bias)?;
    let dt = b.g.add(dt, bias); // [n_head, n_tokens]
    let a = b.weight("ssm_a", &[1, ssm.n_head], Role::Other)?;
    let d = b.weight("ssm_d", &[1, ssm.n_head], Role::Other)?;

    let states = b.g.reshape(state, &[ssm.n_state, head_dim, ssm.n_head, b.batch.n_state_slots]);
    let both = b.g.ssm_scan_ragged(states, x, dt, a, in_b, in_c, of.reads, of.query_starts);
    let y = outputs_and_states(b, both, state, of, &[head_dim, ssm.n_head, n_tokens]);
    let skipped = b.g.mul(x, d);
    let y = b.g.add(skipped, y);
    let y = b.g.reshape(y, &[ssm.n_inner, n_tokens]);
    Ok(b.name(y, "ssm_scan"))
}

/// The outputs of an op whose result is them and then a new state for each sequence; the states go to their slots.
fn outputs_and_states(
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

/// Elements of an F32 result of one dim, from `start` on, as a tensor of these dims.
fn part(b: &mut Builder<'_>, t: Tensor, start: u64, dims: &[u64]) -> Tensor {
    let ne = shape(dims);
    let nb = contiguous_strides(DType::F32, ne).unwrap_or(b.g.def(t).nb);
    b.g.view(t, ne, nb, start * size_of::<f32>() as u64)
}
