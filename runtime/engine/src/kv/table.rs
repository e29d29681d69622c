//! Which blocks a sequence uses, in which order.

use super::pool::{BlockId, BlockPool};
use crate::error::Result;
use crate::scheduler::BlockMove;
use std::ops::Range;

/// The blocks of one sequence, in the order of its tokens. The first may have been given back, where only a window is read.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct BlockTable {
    /// Blocks before the first that is held.
    n_left: usize,
    blocks: Vec<BlockId>,
}

impl BlockTable {
    /// The blocks that are held, in the order of the tokens.
    pub fn ids(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Blocks up to the last one, those included that were given back.
    pub fn end(&self) -> usize {
        self.n_left + self.blocks.len()
    }

    /// Blocks that were given back at the front.
    pub fn n_left(&self) -> usize {
        self.n_left
    }

    /// The block of the tokens from `i · block_size` on, if it is held.
    pub fn get(&self, i: usize) -> Option<BlockId> {
        self.blocks.get(i.checked_sub(self.n_left)?).copied()
    }

    /// Takes blocks from the pool until `n_tokens` tokens have a place; all of them or, with `false`, none.
    pub fn grow(&mut self, n_tokens: usize, pool: &mut BlockPool) -> bool {
        let n_more = pool.blocks_for(n_tokens).saturating_sub(self.end());
        if n_more > pool.n_free() {
            return false;
        }
        self.blocks.extend((0..n_more).map_while(|_| pool.alloc()));
        true
    }

    /// An empty table whose first block will be block `n_left`.
    pub(crate) fn starting_at(n_left: usize) -> BlockTable {
        BlockTable { n_left, blocks: Vec::new() }
    }

    /// Appends a block that the pool counts this table for.
    pub(crate) fn push(&mut self, block: BlockId) {
        self.blocks.push(block);
    }

    /// Puts another block in place `i`, which the pool counts this table for, and gives back the one that it replaces.
    pub(crate) fn replace(&mut self, i: usize, block: BlockId, pool: &mut BlockPool) -> Result<()> {
        match i.checked_sub(self.n_left).and_then(|i| self.blocks.get_mut(i)) {
            Some(place) => pool.free(std::mem::replace(place, block)),
            None => pool.free(block),
        }
    }

    /// Moves the table from one pool to another, where as many blocks are free. `moves` are those of tables that share
    /// blocks with this one: a shared block moves once.
    pub(crate) fn relocate(
        &mut self,
        from: &mut BlockPool,
        to: &mut BlockPool,
        moves: &mut Vec<BlockMove>,
    ) -> Result<()> {
        for block in &mut self.blocks {
            let old = *block;
            if let Some(moved) = moves.iter().find(|moved| moved.from == old) {
                to.share(moved.to)?;
                *block = moved.to;
            } else if let Some(new) = to.alloc() {
                moves.push(BlockMove { from: old, to: new });
                *block = new;
            }
            from.free(old)?;
        }
        Ok(())
    }

    /// Gives back the blocks before block `i`, the first one first.
    pub(crate) fn leave(&mut self, i: usize, pool: &mut BlockPool) -> Result<()> {
        let n = i.saturating_sub(self.n_left).min(self.blocks.len());
        self.n_left += n;
        self.blocks.drain(..n).try_for_each(|block| pool.free(block))
    }

    /// Gives back the blocks after the first `n_tokens` tokens, the last one first.
    pub fn shrink(&mut self, n_tokens: usize, pool: &mut BlockPool) -> Result<()> {
        let n_kept = pool.blocks_for(n_tokens).saturating_sub(self.n_left);
        while self.blocks.len() > n_kept {
            self.blocks.pop().map_or(Ok(()), |block| pool.free(block))?;
        }
        Ok(())
    }

    /// Gives all blocks back.
    pub fn release(&mut self, pool: &mut BlockPool) -> Result<()> {
        self.shrink(0, pool)?;
        self.n_left = 0;
        Ok(())
    }

    /// A table of some of the blocks, which are held and now have one user more.
    pub(crate) fn share(&self, blocks: Range<usize>, pool: &mut BlockPool) -> Result<BlockTable> {
        let mut table = BlockTable::starting_at(blocks.start);
        for block in blocks.map_while(|i| self.get(i)) {
            pool.share(block)?;
            table.push(block);
        }
        Ok(table)
    }

    /// The slot of the token at `position`; `None` where no block is held for it.
    pub fn slot(&self, position: usize, block_size: usize) -> Option<i32> {
        let block = self.get(position / block_size)?;
        i32::try_from(block.0 as usize * block_size + position % block_size).ok()
    }
}
