//! What sequences are kept in, on a device or in host memory: blocks of keys and values, and slots of recurrent states.

use super::pool::{BlockId, BlockPool};
use super::prefix::BlockHash;
use super::table::BlockTable;
use crate::error::Result;
use crate::scheduler::BlockMove;
use crate::sequence::TokenId;

/// The blocks and the slots of one memory.
#[derive(Clone, PartialEq, Debug)]
pub struct CachePools {
    /// Blocks of the caches of layers that see whole contexts. Requests wait for these.
    pub blocks: BlockPool,
    /// Blocks of the caches of layers that see a window. There are as many as sequences that run hold at most, or as many as
    /// of whole contexts, so that these never run out first.
    pub windows: Vec<WindowPool>,
    /// Slots of recurrent states, each of a whole sequence; none for models without such states. A slot is shared by
    /// sequences that fork, and never written while one reads it.
    pub states: BlockPool,
}

/// Blocks of the caches of layers with one window.
#[derive(Clone, PartialEq, Debug)]
pub struct WindowPool {
    /// Tokens that attention sees, the query included.
    pub window: usize,
    /// The blocks.
    pub blocks: BlockPool,
}

/// One of the pools of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolId {
    /// Blocks of whole contexts.
    Blocks,
    /// Blocks of the window with this index.
    Window(usize),
    /// Slots of recurrent states.
    States,
}

impl CachePools {
    /// So many free blocks of `block_size` tokens, and so many free slots.
    pub fn new(n_blocks: usize, n_states: usize, block_size: usize) -> Result<CachePools> {
        let (blocks, states) = (BlockPool::new(n_blocks, block_size)?, BlockPool::new(n_states, 1)?);
        Ok(CachePools { blocks, windows: Vec::new(), states })
    }

    /// With pools for these windows, each of so many blocks.
    pub fn with_windows(mut self, windows: impl IntoIterator<Item = (usize, usize)>) -> Result<CachePools> {
        for (window, n_blocks) in windows {
            let blocks = BlockPool::new(n_blocks, self.blocks.block_size())?;
            self.windows.push(WindowPool { window, blocks });
        }
        Ok(self)
    }

    /// The pools of blocks, each with its window, 0 for whole contexts: those first.
    pub fn paged(&self) -> impl Iterator<Item = (usize, &BlockPool)> {
        std::iter::once((0, &self.blocks)).chain(self.windows.iter().map(|w| (w.window, &w.blocks)))
    }

    /// Whether sequences have states besides blocks.
    pub fn is_recurrent(&self) -> bool {
        self.states.n_blocks() > 0
    }

    /// For caches whose memory is lost: no block has contents.
    pub fn forget_all(&mut self) {
        self.blocks.forget_all();
        self.windows.iter_mut().for_each(|window| window.blocks.forget_all());
    }

    /// Of a text's first full blocks, with these names, how many can be used again: what windows see at their end is there.
    pub(crate) fn n_readable(&self, hashes: &[BlockHash]) -> usize {
        let is_readable = |n: &usize| self.windows.iter().all(|window| window.has_end_of(&hashes[..*n]));
        (0..=hashes.len()).rev().find(is_readable).unwrap_or(0)
    }

    /// Takes the blocks, one of each pool, with most of the first tokens of `rest` after the block named `before`, which are
    /// not full and which no table uses; with how many tokens these are. They lose their name, since they are written next.
    pub(crate) fn take_tail(&mut self, before: BlockHash, rest: &[TokenId]) -> Option<(usize, Vec<BlockId>)> {
        let is_unused = |pool: &BlockPool, hash| pool.find(hash).is_some_and(|b| pool.n_users(b) == Ok(0));
        let is_everywhere = |hash| {
            is_unused(&self.blocks, hash) && self.windows.iter().all(|window| is_unused(&window.blocks, hash))
        };
        let (hash, _, n) = self.blocks.tails(before, rest).find(|(hash, ..)| is_everywhere(*hash))?;
        let windows = self.windows.iter_mut().map(|window| &mut window.blocks);
        let pools = std::iter::once(&mut self.blocks).chain(windows);
        let taken = pools.map(|pool| {
            let block = pool.reuse(hash)?;
            pool.forget(block).ok()?;
            Some(block)
        });
        Some((n, taken.collect::<Option<_>>()?))
    }
}

impl WindowPool {
    /// The first block that is read when `n_computed` tokens are computed, by the token after them.
    pub fn first_block(&self, n_computed: usize) -> usize {
        (n_computed + 1).saturating_sub(self.window) / self.blocks.block_size()
    }

    /// Names of those of a text's full blocks that the token after them reads.
    fn end_of<'h>(&self, hashes: &'h [BlockHash]) -> &'h [BlockHash] {
        &hashes[self.first_block(hashes.len() * self.blocks.block_size()).min(hashes.len())..]
    }

    fn has_end_of(&self, hashes: &[BlockHash]) -> bool {
        self.end_of(hashes).iter().rev().all(|hash| self.blocks.find(*hash).is_some())
    }

    /// A table of the blocks that the token after those with these names reads.
    pub(crate) fn reuse(&mut self, hashes: &[BlockHash]) -> BlockTable {
        let read = self.end_of(hashes);
        let mut table = BlockTable::starting_at(hashes.len() - read.len());
        read.iter().filter_map(|hash| self.blocks.reuse(*hash)).for_each(|block| table.push(block));
        table
    }
}

/// Contents that move from one memory to another, or within one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheMoves {
    /// Of blocks.
    pub blocks: Vec<BlockMove>,
    /// Of blocks in the caches of each window; none, if nothing moves there.
    pub windows: Vec<Vec<BlockMove>>,
    /// Of slots of recurrent states.
    pub states: Vec<BlockMove>,
}

impl CacheMoves {
    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.n_moves() == 0
    }

    /// How many blocks and slots move.
    pub fn n_moves(&self) -> usize {
        self.blocks.len() + self.windows.iter().map(Vec::len).sum::<usize>() + self.states.len()
    }

    /// Those of a pool.
    pub fn of(&self, pool: PoolId) -> &[BlockMove] {
        match pool {
            PoolId::Blocks => &self.blocks,
            PoolId::Window(i) => self.windows.get(i).map_or(&[], Vec::as_slice),
            PoolId::States => &self.states,
        }
    }

    /// Those of window `i`, to add to.
    pub(crate) fn of_window(&mut self, i: usize) -> &mut Vec<BlockMove> {
        self.windows.resize(self.windows.len().max(i + 1), Vec::new());
        &mut self.windows[i]
    }

    /// Adds the moves of others.
    pub(crate) fn extend(&mut self, other: CacheMoves) {
        self.blocks.extend(other.blocks);
        self.states.extend(other.states);
        for (i, moves) in other.windows.into_iter().enumerate() {
            self.of_window(i).extend(moves);
        }
    }
}
