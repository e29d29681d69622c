//! The blocks of the paged KV cache: which are free, how often each is used, and in which order a sequence uses them.
//!
//! The cache is an array of slots, one per token. Block `b` is the slots `b·size` to `b·size + size - 1`, so a token
//! is in slot `block · size + position mod size`.

use crate::error::{Error, Result};
use std::fmt;

/// A block of the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// All blocks of one cache. The block freed last is the first to be used again: its memory may still be warm.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockPool {
    block_size: usize,
    free: Vec<BlockId>,
    n_users: Vec<u32>,
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

    /// Blocks that no table uses.
    pub fn n_free(&self) -> usize {
        self.free.len()
    }

    /// Blocks that `n_tokens` tokens fill or begin.
    pub fn blocks_for(&self, n_tokens: usize) -> usize {
        n_tokens.div_ceil(self.block_size)
    }

    /// A free block, now used once; `None` when there is none.
    pub fn alloc(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
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
        if *n_users == 0 {
            self.free.push(block);
        }
        Ok(())
    }

    /// How many tables use the block; 0: it is free.
    pub fn n_users(&self, block: BlockId) -> Result<u32> {
        let n_blocks = self.n_blocks();
        self.n_users.get(block.0 as usize).copied().ok_or(Error::NoSuchBlock { block, n_blocks })
    }

    fn users_of(&mut self, block: BlockId, action: &'static str) -> Result<&mut u32> {
        if self.n_users(block)? == 0 {
            return Err(Error::BlockNotInUse { block, action });
        }
        Ok(&mut self.n_users[block.0 as usize])
    }
}

/// The blocks of one sequence, in the order of its tokens.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct BlockTable {
    blocks: Vec<BlockId>,
}

impl BlockTable {
    /// The blocks in the order of the tokens.
    pub fn ids(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Takes blocks from the pool until `n_tokens` tokens have a place; all of them or, with `false`, none.
    pub fn grow(&mut self, n_tokens: usize, pool: &mut BlockPool) -> bool {
        let n_more = pool.blocks_for(n_tokens).saturating_sub(self.blocks.len());
        if n_more > pool.n_free() {
            return false;
        }
        self.blocks.extend((0..n_more).map_while(|_| pool.alloc()));
        true
    }

    /// Gives back the blocks after the first `n_tokens` tokens, the last one first.
    pub fn shrink(&mut self, n_tokens: usize, pool: &mut BlockPool) -> Result<()> {
        let n_kept = pool.blocks_for(n_tokens);
        while self.blocks.len() > n_kept {
            self.blocks.pop().map_or(Ok(()), |block| pool.free(block))?;
        }
        Ok(())
    }

    /// Gives all blocks back.
    pub fn release(&mut self, pool: &mut BlockPool) -> Result<()> {
        self.shrink(0, pool)
    }

    /// A table of the first `n_blocks` blocks, which now have one user more.
    pub fn share_front(&self, n_blocks: usize, pool: &mut BlockPool) -> Result<Self> {
        let blocks = self.blocks[..n_blocks.min(self.blocks.len())].to_vec();
        blocks.iter().try_for_each(|&block| pool.share(block))?;
        Ok(Self { blocks })
    }

    /// The slot of the token at `position`; `None` after the last block.
    pub fn slot(&self, position: usize, block_size: usize) -> Option<i32> {
        let block = self.blocks.get(position / block_size)?;
        i32::try_from(block.0 as usize * block_size + position % block_size).ok()
    }
}

#[cfg(test)]
mod tests;
