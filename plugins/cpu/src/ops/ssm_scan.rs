//! h = exp(Δ·a)·h + Δ·x·b, then y = Σ h·c over the elements of the state, Δ = softplus(dt). Threads share the heads of
//! all sequences; states are updated in the result.

use super::check::{self, Answer, ensure, product};
use super::{Args, Output, Worker, ragged, recurrence};
use crate::simd::{LANES, Simd, dispatch, math};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let n_states = check::params(StatesParams::from_bytes(node.params_bytes()))?.n_states.max(1) as usize;
    let states = check::floats(node, 0)?.ne();
    let x = check::floats(node, 1)?.ne();
    let [dt, a, b, c] = [2, 3, 4, 5].map(|i| check::floats(node, i).map(|t| t.ne()));
    let (a, b) = (a?, b?);
    let ([head_dim, n_heads, n_tokens, n_batches], d_state) = (x, states[0]);
    let n_seqs = match node.src(7) {
        None => n_batches,
        Some(_) => {
            ensure(n_batches == 1 && n_states == 1, Reason::Param)?;
            ragged::supports(node, 6)?
        }
    };
    let granular = if a[0] == 1 { 1 } else { d_state };
    ensure(states[1..3] == [head_dim, n_heads] && dt? == [n_heads, n_tokens, n_batches, 1], Reason::Shape)?;
    ensure(a == [granular, n_heads, 1, 1], Reason::Shape)?;
    ensure(
        b == [d_state, b[1], n_tokens, n_batches] && c? == b && n_heads.is_multiple_of(b[1]),
        Reason::Shape,
    )?;
    check::vector(&check::ints(node, 6)?, n_seqs)?;
    let n_kept = product(&[d_state, head_dim, n_heads, n_seqs, n_states])?;
    let n = product(&x)?.checked_add(n_kept).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [n, 1, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    match &a.src[7] {
        Some(_) => scan_ragged(w, a, out),
        None => scan(w, a, out),
    }
}

/// Sequences of different lengths: threads share the heads, each with all sequences.
fn scan_ragged(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let ([head_dim, n_heads, n_tokens, _], states) = (a.arg(1).ne, a.arg(0));
    let sequences = ragged::Sequences::bind(a, 6, n_tokens, states.ne[3]);
    let (dims, size) = ([head_dim, n_heads, n_tokens], head_dim * states.ne[0]);
    let begin = |at: [usize; 2], state: &mut [f32]| begin(states, at, state);
    recurrence::scan_ragged(out, dims, size, &sequences, begin, |at, state, y| token_of(w, a, at, state, y));
}

/// The state that a head starts from.
fn begin(states: &Tensor, [head, slot]: [usize; 2], state: &mut [f32]) {
    let rows = state.chunks_exact_mut(states.ne[0].max(1)).enumerate();
    rows.for_each(|(i, to)| to.copy_from_slice(states.row([i, head, slot])));
}

/// A head's next token.
fn token_of(w: &Worker<'_>, a: &Args, [head, token, batch]: [usize; 3], state: &mut [f32], y: &mut [f32]) {
    let per_group = a.arg(1).ne[1] / a.arg(4).ne[1];
    let delta = softplus(a.arg(2).row([token, batch, 0])[head]);
    let [b, c] = [4, 5].map(|i| a.arg(i).row([head / per_group, token, batch]));
    let factors = [a.arg(3).row([head, 0, 0]), b, c];
    step(w.isa, delta, a.arg(1).row([head, token, batch]), factors, state, y);
}

/// As many tokens of each sequence: threads share the heads of all of them.
fn scan(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let n_states = a.params(StatesParams::from_bytes).n_states.max(1) as usize;
    let (x, ids) = (a.arg(1), a.arg(6).ints([0; 3]));
    let (n_tokens, size) = (x.ne[2], x.ne[0] * a.arg(0).ne[0]);
    for mut unit in recurrence::units(out, x.ne, size, n_states) {
        let (seq, head, state) = (unit.seq, unit.head, unit.state);
        match ragged::slot(ids[seq], a.arg(0).ne[3]) {
            Some(slot) => begin(a.arg(0), [head, slot], state),
            None => state.fill(0.0),
        }
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

/// log(1 + exp(v)), above 20 v itself.
fn softplus(v: f32) -> f32 {
    if v > 20.0 { v } else { v.exp().ln_1p() }
}

dispatch! {
    fn step(delta: f32, x: &[f32], abc: [&[f32]; 3], state: &mut [f32], y: &mut [f32]) = step_with;
}

#[inline(always)]
fn step_with<S: Simd>(s: S, delta: f32, x: &[f32], [a, b, c]: [&[f32]; 3], state: &mut [f32], y: &mut [f32]) {
    if b.is_empty() {
        return y.fill(0.0); // sums over no elements
    }
    let shared = (a.len() == 1).then(|| s.splat((delta * a[0]).exp()));
    let exp = |a: S::F| math::exp(s, s.mul(s.splat(delta), a));
    for ((h, x), y) in state.chunks_exact_mut(b.len()).zip(x).zip(y) {
        let x_delta = s.splat(x * delta);
        let mut sum = s.zero();
        let (h, h_rest) = h.as_chunks_mut::<LANES>();
        for (j, h) in h.iter_mut().enumerate() {
            let at = j * LANES..(j + 1) * LANES;
            let load = |v: &[f32]| s.load_part(&v[at.clone()]);
            let fade = shared.unwrap_or_else(|| exp(load(a)));
            let new = s.fma(s.load(h), fade, s.mul(load(b), x_delta));
            sum = s.fma(new, load(c), sum);
            s.store(new, h);
        }
        if !h_rest.is_empty() {
            let rest = b.len() - h_rest.len()..;
            let fade = shared.unwrap_or_else(|| exp(s.load_part(&a[rest.clone()])));
            let new = s.fma(s.load_part(h_rest), fade, s.mul(s.load_part(&b[rest.clone()]), x_delta));
            sum = s.fma(new, s.load_part(&c[rest]), sum);
            s.store_part(new, h_rest);
        }
        *y = s.sum(sum);
    }
}
