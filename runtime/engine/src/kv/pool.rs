//! The blocks of the paged KV cache: which are free, how often each is used, and what of those without users is kept.
//!
//! The cache is an array of slots, one per token. Block `b` is the slots `b·size` to `b·size + size - 1`, so a token
//! is in slot `block · size + position mod size`.

use super::prefix::{BlockHash, PrefixCache};
use crate::error::{Error, Result};
use crate::sequence::TokenId;
use std::fmt;

/// A block of the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// All blocks of one cache. The block freed last is the first to be used again: its memory may still be warm. Blocks whose
/// contents have a name ([`BlockPool::name`]) are kept when they are freed, and given up when there is no other, the one
/// used least recently first.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockPool {
    block_size: usize,
    free: Vec<BlockId>,
    n_users: Vec<u32>,
    prefixes: PrefixCache,
    /// Blocks that stay free.
    n_withheld: usize,
}

impl BlockPool {
    /// `n_blocks` free blocks of `block_size` tokens. Slots are i32 on the device, so there are at most 2³¹ - 1.
    pub fn new(n_blocks: usize, block_size: usize) -> Result<Self> {
        let n_slots = n_blocks.checked_mul(block_size).and_then(|n| i32::try_from(n).ok());
        match n_slots {
            Some(_) if block_size > 0 && u32::try_from(n_blocks).is_ok() => Ok(Self {
                block_size,
                free: (0..n_blocks as u32).rev().map(BlockId).collect(),
                n_users: vec![0; n_blocks],
                prefixes: PrefixCache::new(n_blocks),
                n_withheld: 0,
            }),
            _ => Err(Error::BadPool { n_blocks, block_size }),
        }
    }

    /// Tokens in one block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Blocks, used and free.
    pub fn n_blocks(&self) -> usize {
        self.n_users.len()
    }

    /// Blocks that tables may take.
    pub fn n_free(&self) -> usize {
        (self.free.len() + self.prefixes.n_unused()).saturating_sub(self.n_withheld)
    }

    /// Blocks that tables use.
    pub fn n_used(&self) -> usize {
        self.n_blocks() - self.free.len() - self.prefixes.n_unused()
    }

    /// Blocks that tables may use.
    pub fn n_usable(&self) -> usize {
        self.n_blocks().saturating_sub(self.n_withheld)
    }

    /// Keeps `n` blocks from being taken, from now on.
    pub fn withhold(&mut self, n: usize) {
        self.n_withheld = n;
    }

    /// Those of them that are kept for their contents.
    pub fn n_kept(&self) -> usize {
        self.prefixes.n_unused()
    }

    /// Blocks that `n_tokens` tokens fill or begin.
    pub fn blocks_for(&self, n_tokens: usize) -> usize {
        n_tokens.div_ceil(self.block_size)
    }

    /// A free block, now used once; `None` when there is none.
    pub fn alloc(&mut self) -> Option<BlockId> {
        if self.n_free() == 0 {
            return None;
        }
        let block = self.free.pop().or_else(|| self.prefixes.evict())?;
        self.n_users[block.0 as usize] = 1;
        Some(block)
    }

    /// One more user for a block in use.
    pub fn share(&mut self, block: BlockId) -> Result<()> {
        *self.users_of(block, "shared")? += 1;
        Ok(())
    }

    /// One user less; the last one makes the block free.
    pub fn free(&mut self, block: BlockId) -> Result<()> {
        let n_users = self.users_of(block, "freed")?;
        *n_users -= 1;
        if *n_users == 0 && !self.prefixes.keep(block) {
            self.free.push(block);
        }
        Ok(())
    }

    /// Names the contents of a block in use, so that [`BlockPool::reuse`] finds it. `false` if it has a name, or another block
    /// has this one.
    pub fn name(&mut self, block: BlockId, hash: BlockHash) -> Result<bool> {
        self.users_of(block, "named")?;
        Ok(self.prefixes.name(block, hash))
    }

    /// Names the contents of a block in use; another block that has the name loses it.
    pub(crate) fn take_name(&mut self, block: BlockId, hash: BlockHash) -> Result<()> {
        self.users_of(block, "named")?;
        self.free.extend(self.prefixes.take_name(block, hash));
        Ok(())
    }

    /// The names of all contents that [`BlockPool::reuse`] finds, in no order.
    pub fn names(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.prefixes.names()
    }

    /// The block with these contents, if there is one.
    pub fn find(&self, hash: BlockHash) -> Option<BlockId> {
        self.prefixes.find(hash)
    }

    /// A block with these contents, with one user more.
    pub fn reuse(&mut self, hash: BlockHash) -> Option<BlockId> {
        let block = self.prefixes.find(hash)?;
        if self.n_users[block.0 as usize] == 0 && self.n_free() == 0 {
            return None;
        }
        let n_users = &mut self.n_users[block.0 as usize];
        if *n_users == 0 {
            self.prefixes.take(block);
        }
        *n_users += 1;
        Some(block)
    }

    /// Blocks that are not full, whose tokens are all among the first of `rest` after the block named `before`, with their
    /// names and how many tokens these are; most tokens first.
    pub fn tails<'a>(
        &'a self,
        before: BlockHash,
        rest: &'a [TokenId],
    ) -> impl Iterator<Item = (BlockHash, BlockId, usize)> + 'a {
        let lengths = (1..=rest.len().min(self.block_size - 1)).rev();
        lengths.filter_map(move |n| {
            let hash = before.next(&rest[..n]);
            Some((hash, self.find(hash)?, n))
        })
    }

    /// For a block in use that is written again: its contents have no name any more.
    pub fn forget(&mut self, block: BlockId) -> Result<()> {
        self.users_of(block, "written")?;
        self.prefixes.forget(block);
        Ok(())
    }

    /// For a cache whose memory is lost: no block has contents.
    pub fn forget_all(&mut self) {
        let kept = self.prefixes.clear();
        self.free.extend(kept);
    }

    /// How many tables use the block; 0: it is free.
    pub fn n_users(&self, block: BlockId) -> Result<u32> {
        let n_blocks = self.n_blocks();
        self.n_users.get(block.0 as usize).copied().ok_or(Error::NoSuchBlock { block, n_blocks })
    }

    /// The free blocks, the next one last, and the kept ones, the next one first.
    #[cfg(test)]
    pub(crate) fn unused(&self) -> (&[BlockId], Vec<BlockId>) {
        (&self.free, self.prefixes.unused().collect())
    }

    fn users_of(&mut self, block: BlockId, action: &'static str) -> Result<&mut u32> {
        if self.n_users(block)? == 0 {
            return Err(Error::BlockNotInUse { block, action });
        }
        Ok(&mut self.n_users[block.0 as usize])
    }
}

#[cfg(test)]
mod tests;
