//! S_i: = exp(gᵢ) S_i:, then S += k ⊗ (v - Sᵀk)·β, then y = Sᵀq / √S: for every head, token after token. Gated delta
//! networks (arXiv:2412.06464) have one g for a head and token, Kimi's (arXiv:2510.26692) one for each row of S.
//! The result is F32 [S·H, n_tokens·n_seqs + n_states·S·n_seqs]: outputs, then the state after the last token, that one
//! token before, and so on; slots before the first token are zeros (ggml leaves them as they were).
//! The layout is ggml's: S stands transposed, element i of row j of a state is S_ij; head h of v uses head h mod n of
//! the n heads of q and k.
//!
//! With ids of states and query starts, sequences have different lengths: n_seqs is 1 in q, k, v, g and beta, the tokens
//! of sequence i are those from query start i on, it starts from state ids[i] (zeros if there is none), tokens of no
//! sequence give zeros, and each sequence has one state in the result.

use super::check::product;
use super::{Inferred, Rules, check, ragged, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::StatesParams};

#[path = "gated_delta_net_cases.rs"]
mod cases;

impl Graph {
    /// The gated delta rule: `q` and `k` [S, n_k_heads, n_tokens, n], `v` [S, H, n_tokens, n_seqs], log-gates `g`
    /// [1 or S, H, n_tokens, n_seqs], `beta` [1, H, n_tokens, n_seqs], `state` [S, S, H, n_seqs] give
    /// [S·H, n_tokens·n_seqs + n_states·S·n_seqs]: outputs, then `n_states` times the states [S, S, H, n_seqs], those
    /// after the last token first, then those one token before, … (zeros before the first token; of no tokens, the
    /// given states, then zeros).
    #[allow(clippy::too_many_arguments)]
    pub fn gated_delta_net(
        &mut self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        state: Tensor,
        n_states: u32,
    ) -> Tensor {
        let params = StatesParams { n_states }.to_bytes();
        self.push(Op::GatedDeltaNet, &[q, k, v, g, beta, state].map(Some), &params)
    }

    /// The same for sequences of different lengths: `q` and `k` [S, n_k_heads, n_tokens], `v` [S, H, n_tokens], `g` [1 or
    /// S, H, n_tokens], `beta` [1, H, n_tokens], `states` [S, S, H, n_slots], `ids` [n_seqs] and `query_starts`
    /// [n_seqs + 1] give [S·H, n_tokens + S·n_seqs].
    #[allow(clippy::too_many_arguments)]
    pub fn gated_delta_net_ragged(
        &mut self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        states: Tensor,
        ids: Tensor,
        query_starts: Tensor,
    ) -> Tensor {
        let params = StatesParams { n_states: 1 }.to_bytes();
        self.push(Op::GatedDeltaNet, &[q, k, v, g, beta, states, ids, query_starts].map(Some), &params)
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: cases::cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let n_states = check::params(StatesParams::from_bytes(params))?.n_states.max(1) as u64;
    let v = check::floats(src, 2, "v")?.ne;
    let [s, h, n_tokens, n_batches] = v;
    for (i, what) in [(0, "q"), (1, "k")] {
        let ne = check::floats(src, i, what)?.ne;
        if ne[0] != s || ne[2] != n_tokens || !h.is_multiple_of(ne[1]) || !n_batches.is_multiple_of(ne[3]) {
            return Err(format!("{what} {ne:?} does not fit v {v:?}"));
        }
    }
    let g = check::floats(src, 3, "g")?.ne;
    let beta = check::floats(src, 4, "beta")?.ne;
    let state = check::floats(src, 5, "state")?.ne;
    let n_gates = if g[0] == 1 { 1 } else { s };
    let (n_slots, n_seqs) = match ragged::is(src, 6) {
        false => (n_batches, n_batches),
        true if (n_batches, n_states) == (1, 1) => (state[3], ragged::check(src, 6)?),
        true => return Err(format!("query starts with {n_batches} batches of v and {n_states} states")),
    };
    for (what, found, expected) in [
        ("g", g, [n_gates, h, n_tokens, n_batches]),
        ("beta", beta, [1, h, n_tokens, n_batches]),
        ("state", state, [s, s, h, n_slots]),
    ] {
        if found != expected {
            return Err(format!("{what} is {found:?}, expected {expected:?}"));
        }
    }
    let n_outputs = product(&[n_tokens, n_batches])?;
    let n_rows = product(&[n_states, s, n_seqs])?.checked_add(n_outputs).ok_or("the result is too big")?;
    Ok((DType::F32, [product(&[s, h])?, n_rows, 1, 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let n_states = StatesParams::from_bytes(params).unwrap_or_default().n_states.max(1) as usize;
    let [q, k, v, g, beta, state] = std::array::from_fn(|i| check::arg(src, i));
    let [s, h, n_tokens, n_batches] = v.ne.map(|n| n as usize);
    let sequences = ragged::sequences(src, 6, n_tokens * n_batches, state.ne[3] as usize);
    let (n_seqs, per_seq) = (sequences.len(), s * s * h);
    let mut y = vec![0.0; s * h * n_tokens * n_batches];
    let mut kept = vec![0.0; n_states * n_seqs * per_seq];
    for (seq, (slot, tokens)) in sequences.into_iter().enumerate() {
        let mut state = match slot {
            Some(slot) => state.floats()[slot * per_seq..][..per_seq].to_vec(),
            None => vec![0.0; per_seq],
        };
        for token in tokens.clone() {
            for head in 0..h {
                let row = token * h + head;
                let (q, k) = (shared_row(q, v, [head, token]), shared_row(k, v, [head, token]));
                let (g, beta) = (g.row(row), beta.row(row)[0]);
                for (j, column) in state[head * s * s..][..s * s].chunks_exact_mut(s).enumerate() {
                    column.iter_mut().enumerate().for_each(|(i, v)| *v *= g[i % g.len()].exp());
                    let delta = (v.row(row)[j] - dot(column, k)) * beta;
                    column.iter_mut().zip(k).for_each(|(v, k)| *v += delta * k);
                    y[row * s + j] = dot(column, q) / (s as f32).sqrt();
                }
            }
            let back = tokens.end - 1 - token;
            if back < n_states {
                kept[(back * n_seqs + seq) * per_seq..][..per_seq].copy_from_slice(&state);
            }
        }
        if tokens.is_empty() {
            kept[seq * per_seq..][..per_seq].copy_from_slice(&state);
        }
    }
    y.extend(kept);
    let n_rows = n_tokens * n_batches + n_states * s * n_seqs;
    Value::f32([(s * h) as u64, n_rows as u64, 1, 1], y)
}

/// The row of q or k that goes with a head of v, at a token of those of all batches.
fn shared_row<'a>(t: &'a Value, v: &Value, [head, token]: [usize; 2]) -> &'a [f32] {
    let [_, n_heads, n_tokens, n_batches] = t.ne.map(|n| n as usize);
    let batch = token / n_tokens / (v.ne[3] as usize / n_batches);
    t.row((batch * n_tokens + token % n_tokens) * n_heads + head % n_heads)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| *a as f64 * *b as f64).sum::<f64>() as f32
}
