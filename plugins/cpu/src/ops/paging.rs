//! Block table, sequence lengths and query starts: which keys a query sees, and in which slots they are.
//! A query start counts as no less than those before it and as no more than the end, so no token has two sequences.

use super::Args;
use super::check::{self, Answer, ensure};
use crate::scratch::Arena;
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
    /// First query of each sequence, and the end: in order, at most the number of tokens.
    starts: &'a [u32],
    /// Slots in a block.
    pub block_size: usize,
    /// Slots in the cache.
    pub n_slots: usize,
    reach: Reach,
}

/// Slots in a block, slots in the cache, and tokens of the step.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub block_size: u32,
    pub n_slots: usize,
    pub n_tokens: usize,
}

/// Which keys of its sequence a query sees, by their positions.
#[derive(Clone, Copy)]
pub struct Reach {
    /// Tokens a query sees, itself included; 0: all. Bidirectional: those at most half as far, before and after it.
    pub window: u32,
    /// Positions of a chunk, whose queries see its keys only; 0: none.
    pub chunk: u32,
    /// Whether later keys are seen.
    pub bidirectional: bool,
}

impl Reach {
    /// All keys up to the query.
    pub const CAUSAL: Reach = Reach { window: 0, chunk: 0, bidirectional: false };

    /// Positions that a query at `pos` of a sequence of `len` tokens sees; none where `pos` is before the sequence.
    /// Neither end is before that of an earlier query.
    fn positions(self, pos: i64, len: i64) -> Range<usize> {
        if pos < 0 {
            return 0..0;
        }
        let window = i64::from(self.window);
        let (mut start, mut end) = match (self.bidirectional, window) {
            (false, 0) => (0, pos + 1),
            (false, _) => (pos - window + 1, pos + 1),
            (true, 0) => (0, len),
            (true, _) => (pos - window / 2, pos + window / 2 + 1),
        };
        if self.chunk > 0 {
            let chunk = i64::from(self.chunk);
            let first = pos / chunk * chunk;
            (start, end) = (start.max(first), end.min(first + chunk));
        }
        start.max(0) as usize..end.min(len) as usize
    }
}

impl<'a> Paging<'a> {
    /// The operands from source `first` on; `memory` holds the query starts once they are in order.
    pub fn new(a: &'a Args, first: usize, sizes: Sizes, reach: Reach, memory: &'a mut Arena) -> Paging<'a> {
        let given = a.arg(first + 2).ints([0; 3]);
        let starts = memory.take::<u32>(given.len());
        let mut least = 0;
        for (to, &start) in starts.iter_mut().zip(given) {
            least = (start.max(0) as usize).min(sizes.n_tokens).max(least);
            *to = least as u32;
        }
        Paging {
            table: a.arg(first),
            lens: a.arg(first + 1).ints([0; 3]),
            starts,
            block_size: sizes.block_size as usize,
            n_slots: sizes.n_slots,
            reach,
        }
    }

    /// Tokens of the step that are queries of sequence `seq`.
    pub fn queries(&self, seq: usize) -> Range<usize> {
        self.starts[seq] as usize..self.starts[seq + 1] as usize
    }

    /// Tokens of the step that are queries of some sequence.
    pub fn all_queries(&self) -> Range<usize> {
        self.starts[0] as usize..self.starts[self.lens.len()] as usize
    }

    /// Position of token `token`, a query of sequence `seq`.
    pub fn position(&self, seq: usize, token: usize) -> i64 {
        let (start, end) = (self.starts[seq] as i64, self.starts[seq + 1] as i64);
        self.lens[seq] as i64 - (end - start) + (token as i64 - start)
    }

    /// Positions that token `token`, a query of sequence `seq`, sees.
    pub fn visible(&self, seq: usize, token: usize) -> Range<usize> {
        self.reach.positions(self.position(seq, token), i64::from(self.lens[seq]))
    }

    /// Positions that one of these tokens, queries of sequence `seq`, sees and that are in the block table.
    pub fn keys(&self, seq: usize, tokens: &Range<usize>) -> Range<usize> {
        if tokens.is_empty() {
            return 0..0;
        }
        let in_table = self.table.ne[0].saturating_mul(self.block_size);
        let (start, end) = (self.visible(seq, tokens.start).start, self.visible(seq, tokens.end - 1).end);
        start..end.min(in_table).max(start)
    }

    /// The slot of position `key` of sequence `seq`, if its block is in the table and in the cache.
    pub fn slot(&self, seq: usize, key: usize) -> Option<usize> {
        let block = *self.table.ints([seq, 0, 0]).get(key / self.block_size)?;
        let slot = usize::try_from(block).ok()?.checked_mul(self.block_size)? + key % self.block_size;
        (slot < self.n_slots).then_some(slot)
    }

    /// The slots of `out.len()` positions from `key` on, block by block; `usize::MAX` where [`Paging::slot`] has none.
    pub fn slots(&self, seq: usize, mut key: usize, mut out: &mut [usize]) {
        while !out.is_empty() {
            let n = (self.block_size - key % self.block_size).min(out.len());
            let (block, rest) = out.split_at_mut(n);
            let first = self.slot(seq, key);
            for (i, slot) in block.iter_mut().enumerate() {
                *slot =
                    first.map(|first| first + i).filter(|slot| *slot < self.n_slots).unwrap_or(usize::MAX);
            }
            (key, out) = (key + n, rest);
        }
    }
}
