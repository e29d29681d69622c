//! Which blocks a sequence uses, in which order.

use super::pool::{BlockId, BlockPool};
use crate::error::Result;
use crate::scheduler::BlockMove;

/// The blocks of one sequence, in the order of its tokens.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct BlockTable {
    pub(super) blocks: Vec<BlockId>,
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

    /// Appends a block that the pool counts this table for.
    pub(crate) fn push(&mut self, block: BlockId) {
        self.blocks.push(block);
    }

    /// Puts another block in a place of the table, which the pool counts this table for; returns the one it replaces.
    pub(crate) fn replace(&mut self, i: usize, block: BlockId) -> BlockId {
        std::mem::replace(&mut self.blocks[i], block)
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
