//! Best fit among cached blocks, for devices without virtual memory.

use super::{Mechanism, Pool, PoolKind, PoolStats};
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Blocks kept for the next use.
const SLOTS: usize = 256;
/// Sizes are multiples of this; so are addresses, as far as the device's own are.
const ROUND: u64 = 256;
/// Idle bytes that are kept before blocks are returned to the device.
const IDLE: u64 = 64 << 20;
/// Computations of which the peak counts, and after which an unused block is old.
const WINDOW: usize = 16;

/// The smallest cached block that fits, or a new one slightly larger than requested.
pub(super) struct Legacy<M: Mechanism> {
    mechanism: M,
    cached: Vec<Block>,
    /// Sizes by address.
    in_use: HashMap<u64, u64>,
    /// Most bytes in use during each of the last computations, the current one last.
    peaks: VecDeque<u64>,
    n_computes: u64,
    pinned: bool,
    stats: PoolStats,
}

struct Block {
    addr: u64,
    size: u64,
    /// The computation that gave it back.
    last_used: u64,
}

impl<M: Mechanism> Legacy<M> {
    pub(super) fn new(mechanism: M) -> Legacy<M> {
        Legacy {
            mechanism,
            cached: Vec::new(),
            in_use: HashMap::new(),
            peaks: VecDeque::from([0]),
            n_computes: 0,
            pinned: false,
            stats: PoolStats { kind: PoolKind::Legacy, ..PoolStats::default() },
        }
    }

    /// A block of at least `size` bytes from the cache: the smallest, and the one used last among equals.
    fn take_cached(&mut self, size: u64, align: u64) -> Option<Block> {
        let fits = |(_, b): &(usize, &Block)| b.size >= size && b.addr.is_multiple_of(align);
        let best = self.cached.iter().enumerate().filter(fits);
        let (i, _) = best.min_by_key(|(_, b)| (b.size, u64::MAX - b.last_used))?;
        Some(self.cached.swap_remove(i))
    }

    /// New memory. When there is none, all idle blocks are freed and the allocation is tried once more.
    fn take_new(&mut self, size: u64) -> Result<Block> {
        let size = rounded(size);
        let addr = match self.mechanism.raw_alloc(size) {
            Ok(addr) => addr,
            Err(e) if self.cached.is_empty() || self.pinned || !e.is_oom() => return Err(e),
            Err(_) => {
                self.evict(|_| true);
                self.mechanism.raw_alloc(size)?
            }
        };
        self.stats.grows += 1;
        self.stats.mapped += size;
        Ok(Block { addr, size, last_used: 0 })
    }

    /// Gives cached blocks back to the device.
    fn evict(&mut self, goes: impl Fn(&Block) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.cached).into_iter().partition(goes);
        self.cached = kept;
        let gone: Vec<Block> = gone;
        for block in gone {
            self.give_back(block);
        }
    }

    fn give_back(&mut self, block: Block) {
        self.mechanism.raw_free(block.addr);
        self.stats.mapped -= block.size;
        self.stats.evictions += 1;
    }

    fn n_cached(&self) -> u64 {
        self.cached.iter().map(|b| b.size).sum()
    }
}

/// The bytes that are allocated on the device for a block of this size.
fn rounded(size: u64) -> u64 {
    size.saturating_add(size / 20).checked_next_multiple_of(ROUND).unwrap_or(size)
}

impl<M: Mechanism> Pool for Legacy<M> {
    fn alloc(&mut self, size: u64, align: u64) -> Result<(u64, u64)> {
        let size = size.max(1);
        let block = match self.take_cached(size, align.max(1)) {
            Some(block) => block,
            None => self.take_new(size)?,
        };
        if !block.addr.is_multiple_of(align.max(1)) {
            let problem =
                format!("the device gave address {:#x}, expected a multiple of {align}", block.addr);
            self.give_back(block);
            return Err(Error::invalid("pool", problem));
        }
        self.in_use.insert(block.addr, block.size);
        self.stats.in_use += block.size;
        self.stats.peak = self.stats.peak.max(self.stats.in_use);
        if let Some(peak) = self.peaks.back_mut() {
            *peak = self.stats.in_use.max(*peak);
        }
        Ok((block.addr, block.size))
    }

    fn free(&mut self, addr: u64, actual: u64) -> Result<()> {
        match self.in_use.get(&addr) {
            Some(&size) if size == actual => self.in_use.remove(&addr),
            found => {
                let there = found.map_or("nothing is".into(), |n| format!("{n} bytes are"));
                let problem = format!("freed {actual} bytes at {addr:#x}, where {there} in use");
                return Err(Error::invalid("pool", problem));
            }
        };
        self.stats.in_use -= actual;
        let block = Block { addr, size: actual, last_used: self.n_computes };
        match self.cached.len() < SLOTS || self.pinned {
            true => self.cached.push(block),
            false => self.give_back(block),
        }
        Ok(())
    }

    fn trim(&mut self) {
        let peak = self.peaks.iter().copied().max().unwrap_or(0);
        if !self.pinned && self.n_cached() > IDLE.max(2 * peak) {
            let now = self.n_computes;
            self.evict(|block| now - block.last_used >= WINDOW as u64);
        }
        self.n_computes += 1;
        self.peaks.push_back(self.stats.in_use);
        if self.peaks.len() > WINDOW {
            self.peaks.pop_front();
        }
    }

    fn pin(&mut self, pinned: bool) {
        self.pinned = pinned;
    }

    fn stats(&self) -> PoolStats {
        PoolStats { cached: self.n_cached(), ..self.stats }
    }

    /// Blocks for each, as if they came in ascending order; a size may be that of two pieces, rounded one by one.
    fn room(&self, sizes: &BTreeSet<u64>) -> u64 {
        sizes.iter().fold(0, |sum, &n| sum.saturating_add(rounded(n)).saturating_add(ROUND))
    }
}

impl<M: Mechanism> Drop for Legacy<M> {
    fn drop(&mut self) {
        let all = self.cached.drain(..).map(|b| b.addr).chain(self.in_use.drain().map(|(addr, _)| addr));
        all.for_each(|addr| self.mechanism.raw_free(addr));
    }
}
