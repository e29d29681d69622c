//! A thread at a node: its part of the work and its working memory.

use crate::cancel::Cancel;
use crate::scratch::{Scratch, Shared};
use crate::simd::Isa;
use crate::tensor::Tensor;
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
}

/// The share that thread `index` of `n_threads` has in `0..n`.
pub fn share(n: usize, index: usize, n_threads: usize) -> Range<usize> {
    n * index / n_threads..n * (index + 1) / n_threads
}

/// One thread of the team at one node.
pub struct Worker<'a> {
    /// This thread.
    pub index: usize,
    /// Threads at this node.
    pub n: usize,
    /// What kernels run with.
    pub isa: Isa,
    /// Waits for the others.
    pub barrier: &'a dyn Fn(),
    /// Pieces that [`Worker::take`] has handed out, of each thread's share.
    pub taken: &'a [Taken],
    /// This thread's working memory.
    pub scratch: &'a mut Scratch,
    /// The team's working memory.
    pub shared: &'a Shared,
    /// Whether the memory that this node's activations are prepared in, the team's or its own, holds them already.
    pub is_prepared: bool,
    /// Whether the run is cancelled, at nodes that take long.
    pub cancel: Option<&'a Cancel>,
}

impl Worker<'_> {
    /// This thread's share of `0..n`.
    pub fn share(&self, n: usize) -> Range<usize> {
        share(n, self.index, self.n)
    }

    /// The next unclaimed piece of 0..n: of this thread's share as long as there are any, so that it reads what is stored
    /// in a row, then of the others'. Who gets it changes no result. `n` is the
    /// same on all threads, and a node calls either this or [`Worker::take_in_order`]. None is left once the run is cancelled.
    pub fn take(&self, n: usize) -> Option<usize> {
        if self.cancel.is_some_and(Cancel::poll) {
            return None;
        }
        (0..self.n).map(|i| (self.index + i) % self.n).find_map(|owner| {
            let share = share(n, owner, self.n);
            let i = share.start + self.taken[owner].0.fetch_add(1, Ordering::Relaxed);
            share.contains(&i).then_some(i)
        })
    }

    /// The next piece that no thread has, in order, where the number of pieces is found out on the way; past any number
    /// once the run is cancelled.
    pub fn take_in_order(&self) -> usize {
        if self.cancel.is_some_and(Cancel::poll) {
            return usize::MAX;
        }
        self.taken[0].0.fetch_add(1, Ordering::Relaxed)
    }

    /// This thread's share of a tensor's elements, as (row, elements of the row).
    pub fn pieces(&self, t: &Tensor) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        const PIECE: usize = 1024;
        let (n, per_row) = (t.ne[0], t.ne[0].div_ceil(PIECE));
        let share = self.share(t.n_rows() * per_row);
        share.map(move |i| {
            let start = i % per_row * PIECE;
            (i / per_row, start..(start + PIECE).min(n))
        })
    }
}
