//! The memory of caches: block copies, swaps to host memory and back, and how long these take.

use super::DeviceRunner;
use crate::error::Result;
use crate::kv::pool::BlockId;
use crate::kv::pools::{CacheMoves, PoolId};
use crate::scheduler::{BlockMove, PreemptionCost};
use llmrt_host::sched::executor::Executor;
use llmrt_models::CacheKind;
use std::time::Instant;

/// A cache of one layer.
pub(crate) struct Cache {
    /// The state's name, such as `blk.0.k_cache`.
    pub name: String,
    /// What addresses it.
    pub pool: PoolId,
    /// Bytes of a block or slot.
    pub n_bytes: u64,
}

/// Moving means of measured times, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Timed {
    /// Of a block, or a state, between a device and host memory.
    per_block: Option<f64>,
    /// Of a token of prefill.
    per_token: Option<f64>,
}

impl Timed {
    /// A step of prefill took the time since then.
    pub fn prefill(&mut self, since: Instant, n_tokens: usize) {
        follow(&mut self.per_token, since, n_tokens);
    }
}

/// A mean that follows the last few values.
fn follow(mean: &mut Option<f64>, since: Instant, n: usize) {
    let value = since.elapsed().as_nanos() as f64 / n as f64;
    *mean = Some(mean.map_or(value, |mean| 0.75 * mean + 0.25 * value));
}

impl DeviceRunner {
    /// Copies blocks of the caches one after the other, on their devices.
    pub(crate) fn copy_blocks(&mut self, copies: &CacheMoves) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        for Cache { name, n_bytes, pool } in self.caches() {
            for copy in copies.of(pool) {
                let at = |block: BlockId| u64::from(block.0) * n_bytes;
                self.executor().copy_state(&name, at(copy.from), at(copy.to), n_bytes)?;
            }
        }
        Ok(())
    }

    /// Blocks and states that the swap space holds: a state of each sequence first.
    pub(super) fn swap_space(&self) -> (usize, usize) {
        let bytes = |is_recurrent| {
            let caches = self.caches().into_iter();
            let caches = caches.filter(|cache| (cache.pool == PoolId::States) == is_recurrent);
            caches.map(|cache| cache.n_bytes).sum::<u64>()
        };
        let space = self.options.swap_space;
        if space == 0 {
            return (0, 0);
        }
        let (block, state) = (bytes(false), bytes(true));
        let n_states = space.checked_div(state).map_or(0, |n| n.min(self.options.max_seqs as u64));
        let n_blocks = (space - n_states * state).checked_div(block);
        let n_blocks = n_blocks.map_or(self.options.n_blocks(), |n| n as usize);
        (n_blocks.min(self.options.n_blocks()), n_states as usize)
    }

    /// Measures how long a block takes to host memory and back. The cache is empty.
    pub(super) fn time_a_block(&mut self) -> Result<()> {
        let block = BlockMove { from: BlockId(0), to: BlockId(0) };
        let windows = vec![vec![block]; self.windows().len()];
        let moves = CacheMoves { blocks: vec![block], windows, states: Vec::new() };
        self.swap_out(&moves)?;
        self.swap_in(&moves)
    }

    /// The measured times of swapping and recomputing, once there are both.
    pub(crate) fn preemption_cost(&self) -> Option<PreemptionCost> {
        let (ns_per_block, ns_per_token) = (self.timed.per_block?, self.timed.per_token?);
        Some(PreemptionCost { ns_per_block: ns_per_block as u64, ns_per_token: ns_per_token as u64 })
    }

    /// Copies blocks and states of the caches to host memory.
    pub(crate) fn swap_out(&mut self, moves: &CacheMoves) -> Result<()> {
        self.swap(moves, |executor, cache, moved, host| {
            let at = (u64::from(moved.to.0) * cache.n_bytes) as usize;
            let end = at + cache.n_bytes as usize;
            if host.len() < end {
                host.resize(end, 0);
            }
            executor.read_state(&cache.name, u64::from(moved.from.0) * cache.n_bytes, &mut host[at..end])
        })
    }

    /// Copies blocks and states of host memory to the caches.
    pub(crate) fn swap_in(&mut self, moves: &CacheMoves) -> Result<()> {
        self.swap(moves, |executor, cache, moved, host| {
            let at = (u64::from(moved.from.0) * cache.n_bytes) as usize;
            let part = &host[at..at + cache.n_bytes as usize];
            executor.write_state(&cache.name, u64::from(moved.to.0) * cache.n_bytes, part)
        })
    }

    fn swap(
        &mut self,
        moves: &CacheMoves,
        mut execute: impl FnMut(&mut Executor, &Cache, &BlockMove, &mut Vec<u8>) -> llmrt_host::Result<()>,
    ) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        for cache in self.caches() {
            let host = self.host_blocks.entry(cache.name.clone()).or_default();
            for moved in moves.of(cache.pool) {
                execute(&mut self.deployment.executor, &cache, moved, host)?;
            }
        }
        follow(&mut self.timed.per_block, started, moves.n_moves());
        Ok(())
    }

    /// The caches, by name.
    pub(crate) fn caches(&self) -> Vec<Cache> {
        let kinds = self.model().spec().states();
        let (windows, shape) = (self.windows(), self.options.shape(1, 1, 1));
        let cache = |(name, n): (String, u64)| {
            let kind = kinds.get(&name).copied().unwrap_or(CacheKind::Paged { window: 0 });
            let pool = match kind {
                CacheKind::Recurrent => PoolId::States,
                CacheKind::Paged { window } => {
                    let i = windows.iter().position(|(of_pool, _)| *of_pool == window as usize);
                    i.map_or(PoolId::Blocks, PoolId::Window)
                }
            };
            Cache { name, pool, n_bytes: n / kind.n_units(&shape).max(1) }
        };
        self.deployment.executor.states().into_iter().map(cache).collect()
    }
}
