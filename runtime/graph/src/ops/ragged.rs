//! Sequences of different lengths in one step, cut by query starts.

use super::{check, value::Value};
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

/// Whether sequences are of different lengths: ids of states and query starts are given, from source `first` on.
pub(super) fn is(src: &[Option<&TensorDef>], first: usize) -> bool {
    check::optional(src, first).or(check::optional(src, first + 1)).is_some()
}

/// The sequences of an op whose ids of states and query starts are optional, from source `first` on: the one of `n_slots`
/// states that each starts from, zeros without one, and its tokens. Without them each state is of a sequence, and their
/// tokens, as many of each, stand one after the other.
pub(super) fn sequences(
    src: &[Option<&Value>],
    first: usize,
    n_tokens: usize,
    n_slots: usize,
) -> Vec<(Option<usize>, Range<usize>)> {
    let (ids, starts) = (check::optional_arg(src, first), check::optional_arg(src, first + 1));
    match (ids, starts) {
        (Some(ids), Some(starts)) => {
            let slot = |&id: &i32| usize::try_from(id).ok().filter(|&slot| slot < n_slots);
            ids.ints().iter().map(slot).zip(ranges(starts.ints(), n_tokens)).collect()
        }
        _ => {
            let n = n_tokens.checked_div(n_slots).unwrap_or(0);
            (0..n_slots).map(|seq| (Some(seq), seq * n..(seq + 1) * n)).collect()
        }
    }
}
