//! S_i: = exp(gᵢ) S_i:, then S += k ⊗ (v - Sᵀk)·β, then y = Sᵀq / √S, S transposed in memory. Threads share the heads of
//! all sequences; states are updated in the result.

use super::check::{self, Answer, ensure, product};
use super::recurrence;
use super::{Args, Output, Worker, ragged};
use crate::simd::{Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let n_states = check::params(StatesParams::from_bytes(node.params_bytes()))?.n_states.max(1) as usize;
    let [s, h, n_tokens, n_batches] = check::floats(node, 2)?.ne();
    for i in [0, 1] {
        let ne = check::floats(node, i)?.ne();
        let fits =
            ne[0] == s && ne[2] == n_tokens && h.is_multiple_of(ne[1]) && n_batches.is_multiple_of(ne[3]);
        ensure(fits, Reason::Shape)?;
    }
    let g = check::floats(node, 3)?.ne();
    let n_gates = if g[0] == 1 { 1 } else { s };
    ensure(g == [n_gates, h, n_tokens, n_batches], Reason::Shape)?;
    ensure(check::floats(node, 4)?.ne() == [1, h, n_tokens, n_batches], Reason::Shape)?;
    let states = check::floats(node, 5)?.ne();
    let (n_slots, n_seqs) = match ragged::is(node, 6) {
        false => (n_batches, n_batches),
        true => {
            ensure(n_batches == 1 && n_states == 1, Reason::Param)?;
            (states[3], ragged::supports(node, 6)?)
        }
    };
    ensure(states == [s, s, h, n_slots], Reason::Shape)?;
    let n_outputs = product(&[n_tokens, n_batches])?;
    let n_rows = product(&[n_states, s, n_seqs])?.checked_add(n_outputs).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [product(&[s, h])?, n_rows, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    match &a.src[6] {
        Some(_) => scan_ragged(w, a, out),
        None => scan(w, a, out),
    }
}

/// Sequences of different lengths: threads share the heads, each with all sequences.
fn scan_ragged(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let ([s, h, n_tokens, _], states) = (a.arg(2).ne, a.arg(5));
    let sequences = ragged::Sequences::bind(a, 6, n_tokens, states.ne[3]);
    let begin = |at: [usize; 2], state: &mut [f32]| begin(states, at, state);
    let step = |at: [usize; 3], state: &mut [f32], y: &mut [f32]| token_of(w, a, at, state, y);
    recurrence::scan_ragged(out, [s, h, n_tokens], s * s, &sequences, begin, step);
}

/// As many tokens of each sequence: threads share the heads of all of them.
fn scan(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let n_states = a.params(StatesParams::from_bytes).n_states.max(1) as usize;
    let (v, states) = (a.arg(2), a.arg(5));
    let [s, _, n_tokens, _] = v.ne;
    for mut unit in recurrence::units(out, v.ne, s * s, n_states) {
        let (seq, head, state) = (unit.seq, unit.head, unit.state);
        begin(states, [head, seq], state);
        for token in 0..n_tokens {
            token_of(w, a, [head, token, seq], state, unit.y.row([head, token, seq]));
            let back = n_tokens - 1 - token;
            if (1..n_states).contains(&back) {
                unit.kept.row([unit.index, back - 1, 0]).copy_from_slice(state);
            }
        }
        for back in n_tokens.max(1)..n_states {
            unit.kept.row([unit.index, back - 1, 0]).fill(0.0);
        }
    }
}

/// The state that a head starts from.
fn begin(states: &Tensor, [head, slot]: [usize; 2], state: &mut [f32]) {
    let rows = state.chunks_exact_mut(states.ne[0].max(1)).enumerate();
    rows.for_each(|(j, to)| to.copy_from_slice(states.row([j, head, slot])));
}

/// A head's next token.
fn token_of(w: &mut Worker<'_>, a: &Args, at: [usize; 3], state: &mut [f32], y: &mut [f32]) {
    let [q, k, v, g, beta] = std::array::from_fn(|i| a.arg(i));
    let [head, token, batch] = at;
    let shared = |t: &Tensor| [head % t.ne[1], token, batch / (v.ne[3] / t.ne[3])];
    let gates = w.scratch.floats[0].take::<f32>(g.ne[0]);
    gates.iter_mut().zip(g.row(at)).for_each(|(gate, g)| *gate = g.exp());
    step(w.isa, beta.row(at)[0], [&*gates, q.row(shared(q)), k.row(shared(k)), v.row(at)], state, y);
}

dispatch! {
    fn step(beta: f32, x: [&[f32]; 4], state: &mut [f32], y: &mut [f32]) = step_with;
}

#[inline(always)]
fn step_with<S: Simd>(s: S, beta: f32, [gates, q, k, v]: [&[f32]; 4], state: &mut [f32], y: &mut [f32]) {
    let scale = (y.len() as f32).sqrt();
    for ((column, y), v) in state.chunks_exact_mut(y.len()).zip(y).zip(v) {
        match gates {
            [gate] => column.iter_mut().for_each(|h| *h *= gate),
            _ => column.iter_mut().zip(gates).for_each(|(h, gate)| *h *= gate),
        }
        let delta = (v - recurrence::dot(s, column, k)) * beta;
        recurrence::add_scaled(s, delta, k, column);
        *y = recurrence::dot(s, column, q) / scale;
    }
}
