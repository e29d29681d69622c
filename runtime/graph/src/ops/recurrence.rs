//! What ops share that pass a state from token to token: `rwkv_wkv6`, `rwkv_wkv7` and `gated_linear_attn`.
//!
//! Tokens of all sequences stand one after the other. Each head has a state of S × S elements. The result [S·H, n_tokens +
//! S·n_seqs] holds the outputs of all tokens, then the states [S·S·H, n_seqs] after the last ones (ggml's layout).
//!
//! With ids of states and query starts, sequences have different lengths: the tokens of sequence i are those from query
//! start i on, it starts from state ids[i] (zeros if there is none), and tokens of no sequence give zeros.

use super::{Inferred, case::Case, check, ragged, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::DType;

/// The shape rule: `named` sources [S, H, n_tokens] from the first on, but `[S, H]` where the name is `time_first`;
/// after them the state [S·S·H, n_slots]; after it ids [n_seqs] and query starts [n_seqs + 1], or neither: then all slots
/// have a sequence, with the same number of tokens.
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
    let n_slots = state[1];
    let size = check::product(&[s, s, h])?;
    if state != [size, n_slots, 1, 1] {
        return Err(format!("state is {state:?}, expected {size} elements for each sequence"));
    }
    let n_seqs = match ragged::is(src, names.len() + 1) {
        true => ragged::check(src, names.len() + 1)?,
        false if n_tokens.is_multiple_of(n_slots) => n_slots,
        false => {
            return Err(format!("{n_tokens} tokens are not the same number of each of {n_slots} sequences"));
        }
    };
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

/// The result of an op whose state is source `state_at`: `step` turns the state [S][S] of a head in place and writes the
/// token's S outputs.
pub(super) fn scan(
    src: &[Option<&Value>],
    state_at: usize,
    step: impl Fn(&At, &mut [f32], &mut [f32]),
) -> Value {
    let (x, states) = (check::arg(src, 0), check::arg(src, state_at));
    let [s, h, n_tokens, _] = x.ne.map(|n| n as usize);
    let sequences = ragged::sequences(src, state_at + 1, n_tokens, states.ne[1] as usize);
    let n_rows = n_tokens + s * sequences.len();
    let mut y = vec![0.0; s * h * n_tokens];
    let mut kept = vec![];
    for (slot, tokens) in sequences {
        let mut state = slot.map_or_else(|| vec![0.0; s * s * h], |slot| states.row(slot).to_vec());
        for token in tokens {
            for head in 0..h {
                let at = At { row: (token * h + head) * s, head: head * s, s };
                let state = &mut state[head * s * s..][..s * s];
                step(&at, state, &mut y[at.row..at.row + s]);
            }
        }
        kept.extend(state);
    }
    y.extend(kept);
    Value::f32([(s * h) as u64, n_rows as u64, 1, 1], y)
}

/// Cases of sequences of different lengths: `build` gets S, H and the number of tokens, and then the state, ids and query
/// starts.
pub(super) fn ragged_cases(build: impl Fn(&mut Graph, [u64; 3], [Tensor; 3])) -> Vec<Case> {
    let mut cases = vec![];
    for (lens, which) in [
        (&[3, 1, 0, 5][..], [2, -1, 0, 9]),
        (&[1, 1, 1, 1], [3, 2, 1, 0]),
        (&[9, 0, 0, 0], [1, 1, i32::MIN, i32::MAX]),
    ] {
        let starts: Vec<i32> = (0..=lens.len()).map(|i| lens[..i].iter().sum()).collect();
        cases.push((format!("{lens:?} tokens by query starts"), [16, 3, 10], which.to_vec(), starts));
    }
    for wild in [[0, 4, 0, 4, 4], [-3, 2, 100, 5, 6], [i32::MIN, -1, 0, -1, i32::MAX]] {
        cases.push((format!("query starts {wild:?}"), [33, 2, 7], vec![0, 1, 2, 3], wild.to_vec()));
    }
    let case = |(name, [s, h, n_tokens], which, from): (String, [u64; 3], Vec<i32>, Vec<i32>)| {
        Case::new(name, |g, ints| {
            let state = g.input("state", DType::F32, &[s * s * h, 4]);
            let ids = g.input("ids", DType::I32, &[which.len() as u64]);
            let starts = g.input("starts", DType::I32, &[from.len() as u64]);
            ints.extend([(ids, which), (starts, from)]);
            build(g, [s, h, n_tokens], [state, ids, starts]);
        })
    };
    cases.into_iter().map(case).collect()
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
