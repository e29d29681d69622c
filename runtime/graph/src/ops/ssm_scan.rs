//! h = exp(Δ·a)·h + Δ·x·b, then y = Σ h·c over the elements of the state, with Δ = softplus(dt): for every head, element
//! of it and token. Mamba (arXiv:2312.00752) has a number of a per element of the state, Mamba 2 (arXiv:2405.21060) one
//! per head; as in ggml, dim 0 of a distinguishes them. Heads share b and c in groups, neighbours together.
//!
//! With query starts, sequences have different lengths: x is [head_dim, n_heads, n_tokens], the tokens of sequence i are
//! those from query start i on, tokens of no sequence give zeros, and each sequence has one state in the result.
//!
//! Result: F32, one dim: outputs [head_dim, n_heads, n_tokens, n_seqs], then n_states times states [d_state, head_dim,
//! n_heads, n_seqs], the newest first; slots before the first token are zeros.

use super::check::product;
use super::{Inferred, Rules, check, ragged, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::StatesParams};
use std::ops::Range;

#[path = "ssm_scan_cases.rs"]
mod cases;

impl Graph {
    /// The scan of `x` [head_dim, n_heads, n_tokens, n_seqs] with `dt` [n_heads, n_tokens, n_seqs], `a`
    /// [d_state or 1, n_heads], `b` and `c` [d_state, n_groups, n_tokens, n_seqs]. Sequence i starts from state ids[i]
    /// of `states` [d_state, head_dim, n_heads, n_slots], from zeros if there is none.
    ///
    /// The result is one row: y in the shape of x, then `n_states` times [d_state, head_dim, n_heads, n_seqs]: the
    /// states after the last token, those one token before, … (zeros before the first token; of no tokens, the states
    /// that were given, then zeros).
    #[allow(clippy::too_many_arguments)]
    pub fn ssm_scan(
        &mut self,
        states: Tensor,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        ids: Tensor,
        n_states: u32,
    ) -> Tensor {
        let params = StatesParams { n_states }.to_bytes();
        self.push(Op::SsmScan, &[states, x, dt, a, b, c, ids].map(Some), &params)
    }

    /// The same for sequences of different lengths: `x` [head_dim, n_heads, n_tokens], `dt` [n_heads, n_tokens], `b` and
    /// `c` [d_state, n_groups, n_tokens], `ids` [n_seqs] and `query_starts` [n_seqs + 1].
    #[allow(clippy::too_many_arguments)]
    pub fn ssm_scan_ragged(
        &mut self,
        states: Tensor,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        ids: Tensor,
        query_starts: Tensor,
    ) -> Tensor {
        let params = StatesParams { n_states: 1 }.to_bytes();
        self.push(Op::SsmScan, &[states, x, dt, a, b, c, ids, query_starts].map(Some), &params)
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: cases::cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let n_states = check::params(StatesParams::from_bytes(params))?.n_states.max(1) as u64;
    let [states, x, dt, a, b, c] = sources(src)?;
    let [head_dim, n_heads, n_tokens, n_batches] = x;
    let d_state = states[0];
    let n_seqs = match check::optional(src, 7) {
        None => n_batches,
        Some(_) if (n_batches, n_states) == (1, 1) => ragged::check(src, 6)?,
        Some(_) => return Err(format!("query starts with {n_batches} batches of x and {n_states} states")),
    };
    let expect = |what: &str, found: [u64; 4], expected: [u64; 4]| match found == expected {
        true => Ok(()),
        false => Err(format!("{what} is {found:?}, expected {expected:?} for x {x:?} and states {states:?}")),
    };
    expect("states", states, [d_state, head_dim, n_heads, states[3]])?;
    expect("dt", dt, [n_heads, n_tokens, n_batches, 1])?;
    expect("a", a, [if a[0] == 1 { 1 } else { d_state }, n_heads, 1, 1])?;
    expect("b", b, [d_state, b[1], n_tokens, n_batches])?;
    expect("c", c, b)?;
    check::vector(check::ints(src, 6, "ids")?, n_seqs, "ids")?;
    if !n_heads.is_multiple_of(b[1]) {
        return Err(format!("{n_heads} heads do not share {} groups evenly", b[1]));
    }
    let n_state_elems = product(&[d_state, head_dim, n_heads, n_seqs, n_states])?;
    let n = product(&x)?.checked_add(n_state_elems).ok_or("the result is too big")?;
    Ok((DType::F32, [n, 1, 1, 1]))
}

fn sources(src: &[Option<&TensorDef>]) -> Result<[[u64; 4]; 6], String> {
    let mut all = [[0; 4]; 6];
    for (i, what) in ["states", "x", "dt", "a", "b", "c"].iter().enumerate() {
        all[i] = check::floats(src, i, what)?.ne;
    }
    Ok(all)
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let n_states = StatesParams::from_bytes(params).unwrap_or_default().n_states.max(1) as usize;
    let [states, x, dt, a, b, c] = std::array::from_fn(|i| check::arg(src, i));
    let ids = check::arg(src, 6).ints();
    let [head_dim, n_heads, n_tokens, n_batches] = x.ne.map(|n| n as usize);
    let (d_state, n_groups) = (states.ne[0] as usize, b.ne[1] as usize);
    let sequences: Vec<Range<usize>> = match check::optional_arg(src, 7) {
        Some(starts) => ragged::ranges(starts.ints(), n_tokens).collect(),
        None => (0..n_batches).map(|i| i * n_tokens..(i + 1) * n_tokens).collect(),
    };

    let (n_seqs, per_seq) = (sequences.len(), d_state * head_dim * n_heads);
    let mut y = vec![0.0; x.floats().len()];
    let mut kept = vec![0.0; n_states * n_seqs * per_seq];
    for (seq, tokens) in sequences.into_iter().enumerate() {
        let start = usize::try_from(ids[seq]).ok().filter(|&slot| slot < states.ne[3] as usize);
        let mut state = match start {
            Some(slot) => states.floats()[slot * per_seq..(slot + 1) * per_seq].to_vec(),
            None => vec![0.0; per_seq],
        };
        for at in tokens.clone() {
            for i in 0..head_dim * n_heads {
                let state = &mut state[i * d_state..][..d_state];
                let head = i / head_dim;
                let group = at * n_groups + head / (n_heads / n_groups);
                let (b, c, a) = (b.row(group), c.row(group), a.row(head));
                let delta = softplus(dt.floats()[at * n_heads + head]);
                let x_delta = x.floats()[at * n_heads * head_dim + i] * delta;
                let mut sum = 0.0;
                for (j, h) in state.iter_mut().enumerate() {
                    *h = *h * (delta * a[j % a.len()]).exp() + b[j] * x_delta;
                    sum += *h as f64 * c[j] as f64;
                }
                y[at * n_heads * head_dim + i] = sum as f32;
            }
            let back = tokens.end - 1 - at;
            if back < n_states {
                kept[(back * n_seqs + seq) * per_seq..][..per_seq].copy_from_slice(&state);
            }
        }
        if tokens.is_empty() {
            kept[seq * per_seq..][..per_seq].copy_from_slice(&state);
        }
    }
    y.extend(kept);
    Value::f32([y.len() as u64, 1, 1, 1], y)
}

/// log(1 + exp(v)), above 20 v itself.
fn softplus(v: f32) -> f32 {
    if v > 20.0 { v } else { v.exp().ln_1p() }
}
