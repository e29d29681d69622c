//! What ops share that pass a state from token to token. Heads of sequences are handed out to the threads; each goes
//! through its tokens in order, with its state where the result has it.

use super::check::{self, Answer, ensure, product};
use super::output::Tile;
use super::{Args, Output, ragged};
use crate::simd::{LANES, Simd};
use llmrt_plugin::{DType, NodeView, Reason};

/// Sources [S, H, n_tokens] before the state [S·S·H, n_slots], source `n`; source `first_at` is [S, H]. After the state ids
/// and query starts, or neither.
pub fn supports(node: &NodeView<'_>, n: usize, first_at: Option<usize>) -> Answer {
    let [s, h, n_tokens, _] = check::floats(node, 0)?.ne();
    for i in 0..n {
        let expected = [s, h, if first_at == Some(i) { 1 } else { n_tokens }, 1];
        ensure(check::floats(node, i)?.ne() == expected, Reason::Shape)?;
    }
    let state = check::floats(node, n)?.ne();
    let n_slots = state[1];
    ensure(state == [product(&[s, s, h])?, n_slots, 1, 1], Reason::Shape)?;
    let n_seqs = match ragged::is(node, n + 1) {
        true => ragged::supports(node, n + 1)?,
        false => {
            ensure(n_tokens.is_multiple_of(n_slots), Reason::Shape)?;
            n_slots
        }
    };
    let n_rows = product(&[s, n_seqs])?.checked_add(n_tokens).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [product(&[s, h])?, n_rows, 1, 1])
}

/// A head of a sequence, with what one thread writes of it.
pub struct Unit<'a> {
    /// Its number, heads of a sequence side by side.
    pub index: usize,
    /// The sequence.
    pub seq: usize,
    /// The head.
    pub head: usize,
    /// Outputs at [head, token, seq].
    pub y: Tile<'a>,
    /// The state after the last token.
    pub state: &'a mut [f32],
    /// The states before, at [index, tokens back - 1, 0].
    pub kept: Tile<'a>,
}

/// This thread's units of a result: outputs [s, heads, tokens, sequences], then `n_states` times the states of all units,
/// the last first.
pub fn units(
    out: Output<'_>,
    ne: [usize; 4],
    size: usize,
    n_states: usize,
) -> impl Iterator<Item = Unit<'_>> {
    let [s, h, n_tokens, n_seqs] = ne;
    let [y, states] = out.split_at(ne.iter().product());
    let [last, kept] = states.split_at(size * h * n_seqs);
    let outputs = y.reshaped(ne).tiles([s, 1, n_tokens, 1]);
    let last = last.reshaped([size, h * n_seqs, 1, 1]).rows();
    let kept = kept.reshaped([size, h * n_seqs, n_states - 1, 1]).tiles([size, 1, n_states, 1]);
    outputs.zip(last).zip(kept).map(|((y, ([index, ..], state)), kept)| {
        let [_, head, _, seq] = y.dims();
        Unit { index, seq: seq.start, head: head.start, y, state: state.floats(), kept }
    })
}

/// This thread's heads: `step` gets token and head, the state [S][S] and the token's S outputs, in the order of tokens.
pub fn scan(a: &Args, out: Output<'_>, state_at: usize, step: impl Fn([usize; 3], &mut [f32], &mut [f32])) {
    let [s, h, n_tokens, _] = a.arg(0).ne;
    let from = a.arg(state_at);
    let n_slots = from.ne[1];
    let begin = |[head, slot]: [usize; 2], state: &mut [f32]| {
        state.copy_from_slice(&from.row([slot, 0, 0])[head * s * s..(head + 1) * s * s]);
    };
    if a.src[state_at + 1].is_some() {
        let sequences = ragged::Sequences::bind(a, state_at + 1, n_tokens, n_slots);
        return scan_ragged(out, [s, h, n_tokens], s * s, &sequences, begin, step);
    }
    let per_seq = n_tokens.checked_div(n_slots).unwrap_or(0);
    for Unit { seq, head, mut y, state, .. } in units(out, [s, h, per_seq, n_slots], s * s, 1) {
        begin([head, seq], state);
        for token in 0..per_seq {
            step([head, seq * per_seq + token, 0], state, y.row([head, token, seq]));
        }
    }
}

/// This thread's heads of sequences of different lengths, of a result with outputs [s, heads, n_tokens], then states
/// [size, heads, n_seqs]: `begin` gets head and slot and the state to fill, `step` as in [`scan`].
pub fn scan_ragged(
    out: Output<'_>,
    [s, h, n_tokens]: [usize; 3],
    size: usize,
    sequences: &ragged::Sequences<'_>,
    begin: impl Fn([usize; 2], &mut [f32]),
    mut step: impl FnMut([usize; 3], &mut [f32], &mut [f32]),
) {
    let n_seqs = sequences.len();
    let [y, states] = out.split_at(s * h * n_tokens);
    let y = y.reshaped([s, h, n_tokens, 1]).tiles([s, 1, n_tokens, 1]);
    let states = states.reshaped([size, h, n_seqs, 1]).tiles([size, 1, n_seqs, 1]);
    for (mut y, mut states) in y.zip(states) {
        let [_, heads, tokens, _] = y.dims();
        let head = heads.start;
        tokens.for_each(|token| y.row([head, token, 0]).fill(0.0));
        for (seq, (slot, tokens)) in sequences.iter().enumerate() {
            let state = states.row([head, seq, 0]);
            match slot {
                Some(slot) => begin([head, slot], state),
                None => state.fill(0.0),
            }
            tokens.for_each(|token| step([head, token, 0], state, y.row([head, token, 0])));
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
