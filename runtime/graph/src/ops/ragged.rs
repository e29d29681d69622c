//! Sequences of different lengths in one step, cut by query starts.

use super::check;
use crate::tensor::TensorDef;
use std::ops::Range;

/// Tokens of each sequence. A query start counts as no less than those before it and as no more than the end, so no token
/// has two sequences.
pub(super) fn ranges(
    query_starts: &[i32],
    n_tokens: usize,
) -> impl Iterator<Item = Range<usize>> + Clone + '_ {
    let in_order = query_starts.iter().scan(0, move |least, &start| {
        *least = (start.max(0) as usize).min(n_tokens).max(*least);
        Some(*least)
    });
    in_order.clone().zip(in_order.skip(1)).map(|(start, end)| start..end)
}

/// Checks ids of states and query starts, from source `first` on; returns how many sequences there are.
pub(super) fn check(src: &[Option<&TensorDef>], first: usize) -> Result<u64, String> {
    let ids = check::ints(src, first, "ids")?;
    let n_seqs = ids.ne[0];
    check::vector(ids, n_seqs, "ids")?;
    check::vector(check::ints(src, first + 1, "query starts")?, n_seqs.saturating_add(1), "query starts")?;
    Ok(n_seqs)
}
