//! y[:, i, t] = x[:, t - (n_rows - 1) + i]: of each token its row and those before it. Threads share the rows of all windows,
//! and then those of the new states.

use super::check::{self, Answer, ensure, product};
use super::{Args, Output, Worker, ragged};
use llmrt_plugin::abi::op::TokenWindowsParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(TokenWindowsParams::from_bytes(node.params_bytes()))?;
    let ([n, n_tokens, ne2, ne3], states) = (check::floats(node, 0)?.ne(), check::floats(node, 1)?.ne());
    ensure([ne2, ne3] == [1, 1] && states[0] == n && states[3] == 1, Reason::Shape)?;
    let n_kept = product(&[n, states[1], ragged::supports(node, 2)?])?;
    let n = product(&[n, states[1] + 1, n_tokens])?.checked_add(n_kept).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [n, 1, 1, 1])
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let fill = a.params(TokenWindowsParams::from_bytes).fill;
    let (x, states) = (a.arg(0), a.arg(1));
    let (ids, starts) = (a.arg(2).ints([0; 3]), a.arg(3).ints([0; 3]));
    let ([n, n_tokens, ..], n_before) = (x.ne, states.ne[1]);
    // Row i of a sequence, those of its state first.
    let copy = |seq: usize, tokens: &Range<usize>, i: usize, y: &mut [f32]| match i.checked_sub(n_before) {
        Some(token) => y.copy_from_slice(x.row([tokens.start + token, 0, 0])),
        None => match ragged::slot(ids[seq], states.ne[2]) {
            Some(slot) => y.copy_from_slice(states.row([i, slot, 0])),
            None => y.fill(fill),
        },
    };

    let [windows, kept] = out.split_at(n * (n_before + 1) * n_tokens);
    for ([i, token, _], y) in windows.reshaped([n, n_before + 1, n_tokens, 1]).rows() {
        let of = ragged::ranges(starts, n_tokens).enumerate().find(|(_, tokens)| tokens.contains(&token));
        match of {
            Some((seq, tokens)) => copy(seq, &tokens, token - tokens.start + i, y.floats()),
            None => y.floats().fill(0.0),
        }
    }
    for ([i, seq, _], y) in kept.reshaped([n, n_before, ids.len(), 1]).rows() {
        let tokens = ragged::ranges(starts, n_tokens).nth(seq).unwrap_or_default();
        copy(seq, &tokens, tokens.len() + i, y.floats());
    }
}
