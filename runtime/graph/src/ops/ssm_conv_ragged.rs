//! y[c, t] = Σₖ kernel[k, c] · x[c, t - (n_taps - 1) + k], over the tokens of each sequence: `ssm_conv` for sequences of
//! different lengths, cut by query starts. Before the first token of sequence i are the columns of state ids[i], zeros if
//! there is none. Tokens of no sequence give zeros.
//!
//! Result: F32, one dim: outputs [n_inner, n_tokens] of x F32 [n_inner, n_tokens] and kernel F32 [n_taps, n_inner], then
//! states [n_inner, n_taps - 1, n_seqs]: the columns before each sequence's next token.

use super::{Inferred, Rules, case::Case, check, ragged, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Causal convolution of every channel of `x` [n_inner, n_tokens] with its own kernel of `kernel` [n_taps, n_inner].
    /// `states` is [n_inner, n_taps - 1, n_slots], `ids` [n_seqs], `query_starts` [n_seqs + 1].
    pub fn ssm_conv_ragged(
        &mut self,
        x: Tensor,
        kernel: Tensor,
        states: Tensor,
        ids: Tensor,
        query_starts: Tensor,
    ) -> Tensor {
        self.push(Op::SsmConvRagged, &[x, kernel, states, ids, query_starts].map(Some), &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (x, kernel) = (check::floats(src, 0, "x")?.ne, check::floats(src, 1, "kernel")?.ne);
    let states = check::floats(src, 2, "states")?.ne;
    let [n_inner, n_tokens, ..] = x;
    let Some(n_before) = kernel[0].checked_sub(1) else { return Err("the kernel has no taps".to_string()) };
    if x[2..] != [1, 1] || kernel[1..] != [n_inner, 1, 1] {
        return Err(format!("x {x:?} and kernel {kernel:?}, expected two dims and equal channels"));
    }
    if states != [n_inner, n_before, states[2], 1] {
        return Err(format!("states are {states:?}, expected {n_before} columns of {n_inner} each"));
    }
    let n_seqs = ragged::check(src, 3)?;
    let n_kept = check::product(&[n_inner, n_before, n_seqs])?;
    let n = check::product(&[n_inner, n_tokens])?.checked_add(n_kept).ok_or("the result is too big")?;
    Ok((DType::F32, [n, 1, 1, 1]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let [x, kernel, states] = std::array::from_fn(|i| check::arg(src, i));
    let [n_inner, n_tokens, ..] = x.ne.map(|n| n as usize);
    let (n_before, n_slots) = (kernel.ne[0] as usize - 1, states.ne[2] as usize);
    let (ids, starts) = (check::arg(src, 3).ints(), check::arg(src, 4).ints());

    let mut y = vec![0.0; n_inner * n_tokens];
    let mut kept = vec![];
    for (&id, tokens) in ids.iter().zip(ragged::ranges(starts, n_tokens)) {
        let slot = usize::try_from(id).ok().filter(|&slot| slot < n_slots);
        let before = (0..n_before).map(|i| match slot {
            Some(slot) => states.row(slot * n_before + i).to_vec(),
            None => vec![0.0; n_inner],
        });
        let columns: Vec<Vec<f32>> = before.chain(tokens.clone().map(|t| x.row(t).to_vec())).collect();
        for (i, token) in tokens.enumerate() {
            for c in 0..n_inner {
                let taps = columns[i..].iter().zip(kernel.row(c));
                y[token * n_inner + c] = taps.map(|(column, k)| column[c] * k).sum();
            }
        }
        kept.extend(columns[columns.len() - n_before..].concat());
    }
    y.extend(kept);
    Value::f32([y.len() as u64, 1, 1, 1], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for n_taps in [1, 2, 4, 9] {
        for (n_inner, lens) in
            [(1, &[1][..]), (33, &[3, 1, 0, 7]), (64, &[5]), (640, &[1, 1, 1]), (20, &[0, 0])]
        {
            let n_seqs = lens.len() as i32;
            let ids = (0..n_seqs).map(|i| if i % 3 == 2 { -1 } else { n_seqs - i }).collect::<Vec<_>>();
            let starts: Vec<i32> = (0..=lens.len()).map(|i| lens[..i].iter().sum()).collect();
            let name = format!("{n_taps} taps, {n_inner} channels, {lens:?} tokens");
            cases.push(case(name, [n_taps, n_inner, 12], ids, starts));
        }
    }
    for wild in [[0, 4, 0, 4], [-3, 2, 100, 5], [7, 0, 8, i32::MAX], [i32::MIN, -1, 0, -1]] {
        cases.push(case(format!("query starts {wild:?}"), [4, 8, 8], vec![0, 9, i32::MIN], wild.to_vec()));
    }
    cases.push(Case::new("parts of longer rows", |g, ints| {
        let x = g.input("x", DType::F32, &[50, 9]);
        let part = g.slice(x, 0, 7, 24);
        let kernel = g.weight("kernel", DType::F32, &[8, 24], Role::Matrix);
        let taps = g.slice(kernel, 0, 2, 4);
        let states = g.input("states", DType::F32, &[24, 5, 3]);
        let states = g.slice(states, 1, 1, 3);
        let [ids, starts] = [("ids", 2), ("starts", 3)].map(|(name, n)| g.input(name, DType::I32, &[n]));
        ints.extend([(ids, vec![2, 0]), (starts, vec![1, 2, 8])]);
        g.ssm_conv_ragged(part, taps, states, ids, starts);
    }));
    cases
}

/// Taps, channels and tokens; four states.
fn case(name: String, [n_taps, n_inner, n_tokens]: [u64; 3], which: Vec<i32>, from: Vec<i32>) -> Case {
    Case::new(name, |g, ints| {
        let x = g.input("x", DType::F32, &[n_inner, n_tokens]);
        let kernel = g.weight("kernel", DType::F32, &[n_taps, n_inner], Role::Matrix);
        let states = g.input("states", DType::F32, &[n_inner, n_taps - 1, 4]);
        let ids = g.input("ids", DType::I32, &[which.len() as u64]);
        let starts = g.input("starts", DType::I32, &[from.len() as u64]);
        ints.extend([(ids, which), (starts, from)]);
        g.ssm_conv_ragged(x, kernel, states, ids, starts);
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats, ints};
    use super::*;

    /// Sequence 0 begins and has 3 tokens, sequence 1 goes on from state 1 with one, the last token is of none.
    #[test]
    fn sequences_go_on_from_their_states_and_leave_new_ones() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[1, 5]);
            let kernel = g.input("kernel", DType::F32, &[3, 1]);
            let states = g.input("states", DType::F32, &[1, 2, 2]);
            let ids = g.input("ids", DType::I32, &[2]);
            let starts = g.input("starts", DType::I32, &[3]);
            g.ssm_conv_ragged(x, kernel, states, ids, starts)
        };
        let inputs = [
            ("x", floats(&[1., 2., 3., 4., 5.])),
            ("kernel", floats(&[100., 10., 1.])),
            ("states", floats(&[0., 0., 8., 9.])),
            ("ids", ints(&[-1, 1])),
            ("starts", ints(&[0, 3, 4])),
        ];
        check(build, &inputs, &[1., 12., 123., 894., 0., 2., 3., 9., 4.]);
    }
}
