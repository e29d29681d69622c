//! A thread at a node: its rank in the team and its working memory.

use crate::scratch::{Scratch, Shared};
use crate::simd::Isa;
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many pieces of a thread's share have been taken, in a cache line of its own.
#[derive(Default)]
pub struct Taken(CachePadded<AtomicUsize>);

impl Taken {
    /// None is.
    pub fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }

    /// How many are.
    pub fn n(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes one: how many were before.
    pub fn take(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The share that thread `index` of `n_threads` has in `0..n`.
pub fn share(n: usize, index: usize, n_threads: usize) -> Range<usize> {
    n * index / n_threads..n * (index + 1) / n_threads
}

/// A member of the team at a node. Ops do not read which: all choose the same partition of the work.
#[derive(Clone, Copy)]
pub struct Rank {
    index: usize,
    /// Threads at this node.
    pub n: usize,
}

impl Rank {
    /// Thread `index` of `n`.
    pub fn new(index: usize, n: usize) -> Rank {
        Rank { index, n }
    }

    /// This member's share of `0..n`.
    pub fn share(&self, n: usize) -> Range<usize> {
        share(n, self.index, self.n)
    }

    /// All members, this one first.
    pub fn owners(self) -> impl Iterator<Item = Rank> {
        (0..self.n).map(move |i| Rank { index: (self.index + i) % self.n, ..self })
    }

    /// This member's of the team's counters.
    pub fn counter<'a>(&self, taken: &'a [Taken]) -> &'a Taken {
        &taken[self.index]
    }

    /// Whether a row, of any number, is this member's. The golden ratio's multiples are spread evenly, so neither
    /// neighbouring rows nor the first rows of blocks gather on a member.
    pub fn owns(&self, row: usize) -> bool {
        let part = (row as u32).wrapping_mul(0x9e37_79b9);
        ((part as u64 * self.n as u64) >> 32) as usize == self.index
    }
}

/// One thread of the team at one node.
pub struct Worker<'a> {
    /// Which of the team.
    pub rank: Rank,
    /// What kernels run with.
    pub isa: Isa,
    /// Waits for the others.
    pub barrier: &'a dyn Fn(),
    /// This thread's working memory.
    pub scratch: &'a mut Scratch,
    /// The team's working memory.
    pub shared: &'a Shared,
    /// Whether the memory that this node's activations are prepared in, the team's or its own, holds them already.
    pub is_prepared: bool,
}
