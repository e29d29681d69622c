//! y[:, i, t] = x[:, t - (n_rows - 1) + i]: of each token its row and those before it, over the tokens of each sequence, cut by
//! query starts. Before the first token of sequence i are the rows of state ids[i]; if there is none, `fill`. Tokens of no
//! sequence have zeros.
//!
//! Result: F32, one dim: windows [n, n_rows, n_tokens] of x F32 [n, n_tokens], then states [n, n_rows - 1, n_seqs]: the rows
//! before each sequence's next token.

use super::{Inferred, Rules, case::Case, check, ragged, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::TokenWindowsParams};

impl Graph {
    /// The last rows of `x` [n, n_tokens] up to each token. `states` is [n, n_rows - 1, n_slots], `ids` [n_seqs],
    /// `query_starts` [n_seqs + 1].
    pub fn token_windows(
        &mut self,
        x: Tensor,
        states: Tensor,
        ids: Tensor,
        query_starts: Tensor,
        fill: f32,
    ) -> Tensor {
        let params = TokenWindowsParams { fill }.to_bytes();
        self.push(Op::TokenWindows, &[x, states, ids, query_starts].map(Some), &params)
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(TokenWindowsParams::from_bytes(params))?;
    let (x, states) = (check::floats(src, 0, "x")?.ne, check::floats(src, 1, "states")?.ne);
    let [n, n_tokens, ..] = x;
    if x[2..] != [1, 1] || states[0] != n || states[3] != 1 {
        return Err(format!("x {x:?} with states {states:?}, expected rows of {n} elements"));
    }
    let n_seqs = ragged::check(src, 2)?;
    let n_kept = check::product(&[n, states[1], n_seqs])?;
    let n_rows = states[1].checked_add(1).ok_or("the result is too big")?;
    let n = check::product(&[n, n_rows, n_tokens])?.checked_add(n_kept).ok_or("the result is too big")?;
    Ok((DType::F32, [n, 1, 1, 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let fill = TokenWindowsParams::from_bytes(params).unwrap_or_default().fill;
    let (x, states) = (check::arg(src, 0), check::arg(src, 1));
    let ([n, n_tokens, ..], [_, n_before, n_slots, _]) =
        (x.ne.map(|n| n as usize), states.ne.map(|n| n as usize));
    let (ids, starts) = (check::arg(src, 2).ints(), check::arg(src, 3).ints());

    let n_window = n * (n_before + 1);
    let mut y = vec![0.0; n_window * n_tokens];
    let mut kept = vec![];
    for (&id, tokens) in ids.iter().zip(ragged::ranges(starts, n_tokens)) {
        let slot = usize::try_from(id).ok().filter(|&slot| slot < n_slots);
        let before = (0..n_before).map(|i| match slot {
            Some(slot) => states.row(slot * n_before + i).to_vec(),
            None => vec![fill; n],
        });
        let rows: Vec<Vec<f32>> = before.chain(tokens.clone().map(|t| x.row(t).to_vec())).collect();
        for (i, token) in tokens.enumerate() {
            y[token * n_window..][..n_window].copy_from_slice(&rows[i..=i + n_before].concat());
        }
        kept.extend(rows[rows.len() - n_before..].concat());
    }
    y.extend(kept);
    Value::f32([y.len() as u64, 1, 1, 1], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for n_rows in [1, 2, 4, 9] {
        for (n, lens) in [(1, &[1][..]), (33, &[3, 1, 0, 7]), (64, &[5]), (640, &[1, 1, 1]), (20, &[0, 0])] {
            let n_seqs = lens.len() as i32;
            let ids = (0..n_seqs).map(|i| if i % 3 == 2 { -1 } else { n_seqs - i }).collect::<Vec<_>>();
            let starts: Vec<i32> = (0..=lens.len()).map(|i| lens[..i].iter().sum()).collect();
            let name = format!("{n_rows} rows of {n}, {lens:?} tokens");
            cases.push(case(name, [n_rows, n, 12], ids, starts, n_rows as f32 - 2.0));
        }
    }
    for wild in [[0, 4, 0, 4], [-3, 2, 100, 5], [7, 0, 8, i32::MAX], [i32::MIN, -1, 0, -1]] {
        let name = format!("query starts {wild:?}");
        cases.push(case(name, [4, 8, 8], vec![0, 9, i32::MIN], wild.to_vec(), 0.0));
    }
    cases
}

/// Rows, elements and tokens; four states.
fn case(name: String, [n_rows, n, n_tokens]: [u64; 3], which: Vec<i32>, from: Vec<i32>, fill: f32) -> Case {
    Case::new(name, |g, ints| {
        let all = g.input("x", DType::F32, &[n + 3, n_tokens]);
        let x = g.slice(all, 0, 1, n);
        let states = g.input("states", DType::F32, &[n, n_rows - 1, 4]);
        let ids = g.input("ids", DType::I32, &[which.len() as u64]);
        let starts = g.input("starts", DType::I32, &[from.len() as u64]);
        ints.extend([(ids, which), (starts, from)]);
        g.token_windows(x, states, ids, starts, fill);
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats, ints};
    use super::*;

    /// Sequence 0 begins and has 2 tokens, sequence 1 goes on from state 1 with one, the last token is of none.
    #[test]
    fn sequences_go_on_from_their_states_and_leave_new_ones() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[1, 4]);
            let states = g.input("states", DType::F32, &[1, 2, 2]);
            let ids = g.input("ids", DType::I32, &[2]);
            let starts = g.input("starts", DType::I32, &[3]);
            g.token_windows(x, states, ids, starts, -7.0)
        };
        let inputs = [
            ("x", floats(&[1., 2., 3., 4.])),
            ("states", floats(&[0., 0., 8., 9.])),
            ("ids", ints(&[-1, 1])),
            ("starts", ints(&[0, 2, 3])),
        ];
        let windows = [-7., -7., 1., -7., 1., 2., 8., 9., 3., 0., 0., 0.];
        check(build, &inputs, &[&windows[..], &[1., 2., 9., 3.]].concat());
    }
}
