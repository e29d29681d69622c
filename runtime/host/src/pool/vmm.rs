//! One reserved address range, mapped up to the peak use. Addresses are stable, so plans that
//! hold them stay valid.

use super::{Mechanism, Pool, PoolKind, PoolStats};
use crate::error::{Error, Result};
use std::collections::BTreeSet;

/// Every piece starts at a multiple of this.
const ALIGN: u64 = 128;
/// Most addresses that are reserved.
const LARGEST: u64 = 32 << 30;
/// Computations after which memory that none of them reached is given back.
const WINDOW: u32 = 16;

/// A stack: pieces are freed in the reverse order of their allocation.
pub(super) struct Vmm<M: Mechanism> {
    mechanism: M,
    base: u64,
    /// Starts and ends of the pieces in use, relative to `base`.
    pieces: Vec<(u64, u64)>,
    /// Handles of what is mapped, a unit each, contiguous from `base` on.
    chunks: Vec<u64>,
    /// The farthest end since the last trim, and computations since then.
    reached: u64,
    n_computes: u32,
    pinned: bool,
    stats: PoolStats,
}

impl<M: Mechanism> Vmm<M> {
    /// Reserves addresses: as many as the device allows, has memory for, and 32 GiB at most.
    pub(super) fn new(mechanism: M, total: u64) -> Result<Vmm<M>> {
        let limits = [mechanism.va_limit(), total, LARGEST];
        let size = limits.into_iter().filter(|&n| n > 0).min().unwrap_or(LARGEST);
        let size = size.next_multiple_of(mechanism.granularity());
        let base = mechanism.va_reserve(size)?;
        let stats = PoolStats { kind: PoolKind::Vmm, reserved: size, ..PoolStats::default() };
        let (pieces, chunks) = (Vec::new(), Vec::new());
        Ok(Vmm { mechanism, base, pieces, chunks, reached: 0, n_computes: 0, pinned: false, stats })
    }

    fn top(&self) -> u64 {
        self.pieces.last().map_or(0, |(_, end)| *end)
    }

    /// Maps the addresses up to `end`, unit by unit, so that each can be unmapped alone.
    fn map_to(&mut self, end: u64) -> Result<()> {
        let n = self.mechanism.granularity();
        while self.stats.mapped < end {
            let chunk = self.mechanism.va_map(self.base + self.stats.mapped, n)?;
            self.chunks.push(chunk);
            self.stats.mapped += n;
            self.stats.grows += 1;
        }
        Ok(())
    }

    fn unmap_last(&mut self) {
        let n = self.mechanism.granularity();
        if let Some(chunk) = self.chunks.pop() {
            self.stats.mapped -= n;
            self.mechanism.va_unmap(self.base + self.stats.mapped, n, chunk);
        }
    }
}

impl<M: Mechanism> Pool for Vmm<M> {
    fn alloc(&mut self, size: u64, align: u64) -> Result<(u64, u64)> {
        let start = (self.base + self.top()).checked_next_multiple_of(align.max(ALIGN));
        let start = start.map(|addr| addr - self.base);
        let size = size.max(1).checked_next_multiple_of(ALIGN);
        let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
        let (Some(start), Some(end)) = (start, end.filter(|&end| end <= self.stats.reserved)) else {
            let (requested, left) = (size.unwrap_or(u64::MAX), self.stats.reserved - self.top());
            return Err(Error::out_of_memory("pool", requested, left));
        };
        self.map_to(end)?;
        self.pieces.push((start, end));
        self.reached = self.reached.max(end);
        self.stats.in_use += end - start;
        self.stats.peak = self.stats.peak.max(self.stats.in_use);
        Ok((self.base + start, end - start))
    }

    fn free(&mut self, addr: u64, actual: u64) -> Result<()> {
        let last = self.pieces.last().map(|(start, end)| (self.base + start, end - start));
        if last != Some((addr, actual)) {
            let there = match last {
                Some((addr, n)) => format!("but the last allocation is {n} bytes at {addr:#x}"),
                None => "where nothing is in use".into(),
            };
            let problem = format!("freed {actual} bytes at {addr:#x}, {there}");
            return Err(Error::invalid("pool", problem));
        }
        self.pieces.pop();
        self.stats.in_use -= actual;
        Ok(())
    }

    fn trim(&mut self) {
        self.n_computes += 1;
        if self.n_computes < WINDOW || self.pinned {
            return;
        }
        while self.stats.mapped >= self.reached + self.mechanism.granularity() {
            self.unmap_last();
            self.stats.evictions += 1;
        }
        (self.reached, self.n_computes) = (self.top(), 0);
    }

    fn pin(&mut self, pinned: bool) {
        self.pinned = pinned;
    }

    fn stats(&self) -> PoolStats {
        PoolStats { cached: self.stats.mapped - self.stats.in_use.min(self.stats.mapped), ..self.stats }
    }

    /// Whole units for the largest.
    fn room(&self, sizes: &BTreeSet<u64>) -> u64 {
        let largest = sizes.last().copied().unwrap_or(0);
        largest.checked_next_multiple_of(self.mechanism.granularity()).unwrap_or(largest)
    }
}

impl<M: Mechanism> Drop for Vmm<M> {
    fn drop(&mut self) {
        while !self.chunks.is_empty() {
            self.unmap_last();
        }
        self.mechanism.va_release(self.base, self.stats.reserved);
    }
}
