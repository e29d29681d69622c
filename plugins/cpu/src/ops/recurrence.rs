//! What ops share that pass a state from token to token. Heads of sequences are handed out to the threads; each goes
//! through its tokens in order, with its state where the result has it.

use super::check::{self, Answer, ensure, product};
use super::{Args, Worker};
use crate::simd::{LANES, Simd};
use llmrt_plugin::{DType, NodeView, Reason};

/// Sources [S, H, n_tokens] before the state [S·S·H, n_seqs], source `n`; source `first_at` is [S, H].
pub fn supports(node: &NodeView<'_>, n: usize, first_at: Option<usize>) -> Answer {
    let [s, h, n_tokens, _] = check::floats(node, 0)?.ne();
    for i in 0..n {
        let expected = [s, h, if first_at == Some(i) { 1 } else { n_tokens }, 1];
        ensure(check::floats(node, i)?.ne() == expected, Reason::Shape)?;
    }
    let state = check::floats(node, n)?.ne();
    let n_seqs = state[1];
    ensure(state == [product(&[s, s, h])?, n_seqs, 1, 1] && n_tokens.is_multiple_of(n_seqs), Reason::Shape)?;
    let n_rows = product(&[s, n_seqs])?.checked_add(n_tokens).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [product(&[s, h])?, n_rows, 1, 1])
}

/// This thread's heads: `step` gets token and head, the state [S][S] and the token's S outputs, in the order of tokens.
pub fn scan(w: &Worker<'_>, a: &Args, state_at: usize, step: impl Fn([usize; 3], &mut [f32], &mut [f32])) {
    let [s, h, n_tokens, _] = a.arg(0).ne;
    let from = a.arg(state_at);
    let n_seqs = from.ne[1];
    let per_seq = n_tokens / n_seqs;
    for unit in w.share(n_seqs * h) {
        let (seq, head) = (unit / h, unit % h);
        let first = s * h * n_tokens + unit * s * s;
        // SAFETY: every head of a sequence has one thread, and a state of its own.
        let state = unsafe { a.dst.part_mut([0; 3], first..first + s * s) };
        state.copy_from_slice(&from.row([seq, 0, 0])[head * s * s..(head + 1) * s * s]);
        for token in seq * per_seq..(seq + 1) * per_seq {
            // SAFETY: as above; outputs are stored before all states.
            let y = unsafe { a.dst.part_mut([token, 0, 0], head * s..(head + 1) * s) };
            step([head, token, 0], state, y);
        }
    }
}

/// Σ a·b, in 16 lanes.
#[inline(always)]
pub fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sum = s.zero();
    for (a, b) in a.iter().zip(b) {
        sum = s.fma(s.load(a), s.load(b), sum);
    }
    if !a_rest.is_empty() {
        sum = s.fma(s.load_part(a_rest), s.load_part(b_rest), sum);
    }
    s.sum(sum)
}

/// y += a·x.
#[inline(always)]
pub fn add_scaled<S: Simd>(_: S, a: f32, x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
}
