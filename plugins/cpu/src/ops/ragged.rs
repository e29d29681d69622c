//! Sequences of different lengths in one step, cut by query starts.

use super::{Args, check};
use llmrt_plugin::{NodeView, Reason};
use std::ops::Range;

/// Checks ids of states and query starts, from source `first` on; returns how many sequences there are.
pub fn supports(node: &NodeView<'_>, first: usize) -> Result<usize, Reason> {
    let ids = check::ints(node, first)?;
    let n_seqs = ids.ne()[0];
    check::vector(&ids, n_seqs)?;
    check::vector(&check::ints(node, first + 1)?, n_seqs + 1)?;
    Ok(n_seqs)
}

/// Whether sequences are of different lengths: ids of states and query starts are given, from source `first` on.
pub fn is(node: &NodeView<'_>, first: usize) -> bool {
    node.src(first).or(node.src(first + 1)).is_some()
}

/// The sequences of a step.
pub struct Sequences<'a> {
    /// `None`: sequence i has state i.
    ids: Option<&'a [i32]>,
    /// `None`: all have as many tokens.
    starts: Option<&'a [i32]>,
    n: usize,
    n_tokens: usize,
    n_slots: usize,
}

impl<'a> Sequences<'a> {
    /// Ids of `n_slots` states and query starts are the sources from `first` on, else there is a sequence for each state, of
    /// as many tokens each.
    pub fn bind(a: &'a Args, first: usize, n_tokens: usize, n_slots: usize) -> Sequences<'a> {
        let ints = |i: usize| a.src[i].as_ref().map(|t| t.ints([0; 3]));
        let (ids, starts) = (ints(first), ints(first + 1));
        Sequences { ids, starts, n: ids.map_or(n_slots, <[i32]>::len), n_tokens, n_slots }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether tokens may be of no sequence.
    pub fn may_have_gaps(&self) -> bool {
        self.starts.is_some()
    }

    /// The state that each starts from, zeros without one, and its tokens.
    pub fn iter(&self) -> impl Iterator<Item = (Option<usize>, Range<usize>)> + '_ {
        let per_seq = self.n_tokens.checked_div(self.n).unwrap_or(0);
        let mut ragged = self.starts.map(|starts| ranges(starts, self.n_tokens));
        (0..self.n).map(move |i| {
            let tokens = match &mut ragged {
                Some(ranges) => ranges.next().unwrap_or_default(),
                None => i * per_seq..(i + 1) * per_seq,
            };
            (self.ids.map_or(Some(i), |ids| slot(ids[i], self.n_slots)), tokens)
        })
    }
}

/// Tokens of each sequence. A query start counts as no less than those before it and as no more than the end, so no token
/// has two sequences.
pub fn ranges(query_starts: &[i32], n_tokens: usize) -> impl Iterator<Item = Range<usize>> + Clone + '_ {
    let in_order = query_starts.iter().scan(0, move |least, &start| {
        *least = (start.max(0) as usize).min(n_tokens).max(*least);
        Some(*least)
    });
    in_order.clone().zip(in_order.skip(1)).map(|(start, end)| start..end)
}

/// The state that an id is of, if there is one.
pub fn slot(id: i32, n_slots: usize) -> Option<usize> {
    usize::try_from(id).ok().filter(|&slot| slot < n_slots)
}
