//! Sequences of different lengths in one step, cut by query starts.

use super::check;
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
