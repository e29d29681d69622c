//! What sequences are kept in, on a device or in host memory: blocks of keys and values, and slots of recurrent states.

use super::pool::BlockPool;
use crate::error::Result;
use crate::scheduler::BlockMove;

/// The blocks and the slots of one memory.
#[derive(Clone, PartialEq, Debug)]
pub struct CachePools {
    /// Blocks of the paged caches.
    pub blocks: BlockPool,
    /// Slots of recurrent states, each of a whole sequence; none for models without such states. A slot is shared by
    /// sequences that fork, and never written while one reads it.
    pub states: BlockPool,
}

impl CachePools {
    /// So many free blocks of `block_size` tokens, and so many free slots.
    pub fn new(n_blocks: usize, n_states: usize, block_size: usize) -> Result<CachePools> {
        Ok(CachePools { blocks: BlockPool::new(n_blocks, block_size)?, states: BlockPool::new(n_states, 1)? })
    }

    /// Whether sequences have states besides blocks.
    pub fn is_recurrent(&self) -> bool {
        self.states.n_blocks() > 0
    }
}

/// Contents that move from one memory to another, or within one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheMoves {
    /// Of blocks.
    pub blocks: Vec<BlockMove>,
    /// Of slots of recurrent states.
    pub states: Vec<BlockMove>,
}

impl CacheMoves {
    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.states.is_empty()
    }

    /// Adds the moves of others.
    pub(crate) fn extend(&mut self, other: CacheMoves) {
        self.blocks.extend(other.blocks);
        self.states.extend(other.states);
    }
}
