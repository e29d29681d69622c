//! h = exp(Δ·a)·h + Δ·x·b, then y = Σ h·c over the elements of the state, Δ = softplus(dt). Threads share the heads of
//! all sequences; states are updated in the result.

use super::check::{self, Answer, ensure, product};
use super::recurrence;
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let n_states = check::params(StatesParams::from_bytes(node.params_bytes()))?.n_states.max(1) as usize;
    let states = check::floats(node, 0)?.ne();
    let x = check::floats(node, 1)?.ne();
    let [dt, a, b, c] = [2, 3, 4, 5].map(|i| check::floats(node, i).map(|t| t.ne()));
    let (a, b) = (a?, b?);
    let ([head_dim, n_heads, n_tokens, n_seqs], d_state) = (x, states[0]);
    let granular = if a[0] == 1 { 1 } else { d_state };
    ensure(states[1..3] == [head_dim, n_heads] && dt? == [n_heads, n_tokens, n_seqs, 1], Reason::Shape)?;
    ensure(a == [granular, n_heads, 1, 1], Reason::Shape)?;
    ensure(b == [d_state, b[1], n_tokens, n_seqs] && c? == b && n_heads.is_multiple_of(b[1]), Reason::Shape)?;
    check::vector(&check::ints(node, 6)?, n_seqs)?;
    let n_kept = product(&[d_state, head_dim, n_heads, n_seqs, n_states])?;
    let n = product(&x)?.checked_add(n_kept).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [n, 1, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let n_states = a.params(StatesParams::from_bytes).n_states.max(1) as usize;
    let (states, x, ids) = (a.arg(0), a.arg(1), a.arg(6).ints([0; 3]));
    let ([head_dim, n_heads, n_tokens, _], d_state) = (x.ne, states.ne[0]);
    let per_group = n_heads / a.arg(4).ne[1];
    let size = head_dim * d_state;
    for mut unit in recurrence::units(out, x.ne, size, n_states) {
        let (seq, head, state) = (unit.seq, unit.head, unit.state);
        match usize::try_from(ids[seq]).ok().filter(|&slot| slot < states.ne[3]) {
            Some(slot) => {
                let rows = state.chunks_exact_mut(d_state.max(1)).enumerate();
                rows.for_each(|(i, to)| to.copy_from_slice(states.row([i, head, slot])));
            }
            None => state.fill(0.0),
        }
        for token in 0..n_tokens {
            let delta = softplus(a.arg(2).row([token, seq, 0])[head]);
            let [b, c] = [4, 5].map(|i| a.arg(i).row([head / per_group, token, seq]));
            let y = unit.y.row([head, token, seq]);
            let factors = [a.arg(3).row([head, 0, 0]), b, c];
            step(w.isa, delta, x.row([head, token, seq]), factors, state, y);
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
