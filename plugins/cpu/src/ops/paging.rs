//! Block table, sequence lengths and query starts: which keys a query sees, and in which slots they lie.

use super::check::{self, Answer, ensure};
use crate::tensor::Tensor;
use llmrt_plugin::{NodeView, Reason};
use std::ops::Range;

/// Checks the three operands, from source `first` on.
pub fn supports(node: &NodeView<'_>, first: usize) -> Answer {
    let table = check::ints(node, first)?.ne();
    ensure(table[2..] == [1, 1], Reason::Shape)?;
    check::vector(&check::ints(node, first + 1)?, table[1])?;
    check::vector(&check::ints(node, first + 2)?, table[1] + 1)
}

/// The sequences of a step over a cache.
#[derive(Clone, Copy)]
pub struct Paging<'a> {
    /// I32 [max_blocks, n_seqs].
    pub table: &'a Tensor,
    /// Tokens of each sequence.
    pub lens: &'a [i32],
    /// First query of each sequence, and the end.
    pub starts: &'a [i32],
    /// Slots in a block.
    pub block_size: usize,
    /// Slots in the cache.
    pub n_slots: usize,
    /// Tokens a query sees, itself included; 0: all.
    pub window: u32,
}

impl Paging<'_> {
    /// Tokens of the step that are queries of sequence `seq`.
    pub fn queries(&self, seq: usize, n_tokens: usize) -> Range<usize> {
        let bound = |i: usize| (self.starts[i].max(0) as usize).min(n_tokens);
        bound(seq)..bound(seq + 1)
    }

    /// Position of token `token`, a query of sequence `seq`.
    pub fn position(&self, seq: usize, token: usize) -> i64 {
        let (start, end) = (self.starts[seq] as i64, self.starts[seq + 1] as i64);
        self.lens[seq] as i64 - (end - start) + (token as i64 - start)
    }

    /// Positions that a query at `pos` sees.
    pub fn visible(&self, pos: i64) -> Range<usize> {
        let first = if self.window == 0 { 0 } else { pos - self.window as i64 + 1 };
        first.max(0) as usize..(pos + 1).max(0) as usize
    }

    /// The slot of position `key` of sequence `seq`, if its block lies in the table and in the cache.
    pub fn slot(&self, seq: usize, key: usize) -> Option<usize> {
        let block = *self.table.ints([seq, 0, 0]).get(key / self.block_size)?;
        let slot = usize::try_from(block).ok()?.checked_mul(self.block_size)? + key % self.block_size;
        (slot < self.n_slots).then_some(slot)
    }
}
