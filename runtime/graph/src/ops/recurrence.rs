//! What ops share that pass a state from token to token: `rwkv_wkv6`, `rwkv_wkv7` and `gated_linear_attn`.
//!
//! Tokens of all sequences stand one after the other, the same number of each. Each head has a state of S × S
//! elements. The result [S·H, n_tokens + S·n_seqs] holds the outputs of all tokens, then the states [S·S·H, n_seqs]
//! after the last ones (ggml's layout).

use super::{Inferred, check, value::Value};
use crate::tensor::TensorDef;
use llmrt_abi::DType;

/// The shape rule: `named` sources [S, H, n_tokens] from the first on, but `[S, H]` where the name is `time_first`;
/// after them the state [S·S·H, n_seqs].
pub(super) fn infer(src: &[Option<&TensorDef>], names: &[&str]) -> Inferred {
    let [s, h, n_tokens, _] = check::floats(src, 0, names[0])?.ne;
    for (i, what) in names.iter().enumerate() {
        let expected = [s, h, if *what == "time_first" { 1 } else { n_tokens }, 1];
        let found = check::floats(src, i, what)?.ne;
        if found != expected {
            return Err(format!("{what} is {found:?}, expected {expected:?}"));
        }
    }
    let state = check::floats(src, names.len(), "state")?.ne;
    let n_seqs = state[1];
    let size = check::product(&[s, s, h])?;
    if state != [size, n_seqs, 1, 1] {
        return Err(format!("state is {state:?}, expected {size} elements for each sequence"));
    }
    if !n_tokens.is_multiple_of(n_seqs) {
        return Err(format!("{n_tokens} tokens are not the same number of each of {n_seqs} sequences"));
    }
    let n_rows = check::product(&[s, n_seqs])?.checked_add(n_tokens).ok_or("the result is too big")?;
    Ok((DType::F32, [check::product(&[s, h])?, n_rows, 1, 1]))
}

/// The token and head at which a step of [`scan`] is.
pub(super) struct At {
    /// First of the S elements of this head and token.
    pub row: usize,
    /// First of the S elements of this head.
    pub head: usize,
    /// S.
    pub s: usize,
}

/// The result of the op: `step` turns the state [S][S] of a head in place and writes the token's S outputs.
pub(super) fn scan(x: &Value, state: &Value, step: impl Fn(&At, &mut [f32], &mut [f32])) -> Value {
    let [s, h, n_tokens, _] = x.ne.map(|n| n as usize);
    let n_seqs = state.ne[1] as usize;
    let per_seq = n_tokens / n_seqs;
    let mut y = vec![0.0; s * h * n_tokens];
    let mut states = state.floats().to_vec();
    for token in 0..n_tokens {
        for head in 0..h {
            let at = At { row: (token * h + head) * s, head: head * s, s };
            let first = (token / per_seq * h + head) * s * s;
            step(&at, &mut states[first..first + s * s], &mut y[at.row..at.row + s]);
        }
    }
    y.extend(states);
    let n_rows = n_tokens + s * n_seqs;
    Value::f32([(s * h) as u64, n_rows as u64, 1, 1], y)
}

/// S, H, tokens of each sequence and sequences of the cases.
pub(super) const SIZES: &[[u64; 4]] = &[
    [1, 1, 1, 1],
    [2, 1, 3, 1],
    [3, 2, 1, 2],
    [4, 4, 2, 3],
    [15, 2, 3, 1],
    [16, 1, 5, 1],
    [17, 3, 4, 2],
    [32, 4, 1, 1],
    [33, 1, 2, 1],
    [48, 2, 7, 1],
    [64, 1, 1, 1],
    [64, 2, 1, 4],
    [64, 4, 3, 2],
    [64, 2, 33, 1],
    [64, 8, 2, 1],
    [128, 1, 4, 1],
    [128, 2, 1, 2],
];
