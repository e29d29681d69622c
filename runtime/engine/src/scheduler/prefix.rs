//! Prefixes that a caller reads from the cache, or puts there.

use super::Scheduler;
use crate::error::Result;
use crate::kv::pool::{BlockId, BlockPool};
use crate::kv::prefix::BlockHash;
use crate::sequence::TokenId;

impl Scheduler {
    /// The blocks of a text's first tokens, as many as the prefix cache has.
    pub fn cached_prefix(&self, root: BlockHash, tokens: &[TokenId]) -> Vec<BlockId> {
        let pool = &self.device.blocks;
        names(root, tokens, pool.block_size()).map_while(|hash| pool.find(hash)).collect()
    }

    /// Keeps blocks of a text's first tokens in the prefix cache, as many as are whole and have room. `write` fills those that
    /// it does not have yet; where it fails, that block is not kept. Returns how many tokens there are then.
    pub fn insert_prefix(
        &mut self,
        root: BlockHash,
        tokens: &[TokenId],
        write: &mut dyn FnMut(usize, BlockId) -> Result<()>,
    ) -> Result<usize> {
        let pool = &mut self.device.blocks;
        let mut taken = Vec::new();
        let mut outcome = Ok(());
        for (i, hash) in names(root, tokens, pool.block_size()).enumerate() {
            let Some(block) = pool.reuse(hash).or_else(|| pool.alloc()) else { break };
            taken.push(block);
            if pool.find(hash) != Some(block) {
                outcome = write(i, block).and_then(|()| pool.name(block, hash));
            }
            if outcome.is_err() {
                break;
            }
        }
        let n_tokens = taken.len() * pool.block_size();
        release(taken, pool)?;
        outcome.map(|()| n_tokens)
    }
}

/// The names of a text's whole blocks.
fn names(root: BlockHash, tokens: &[TokenId], block_size: usize) -> impl Iterator<Item = BlockHash> {
    tokens.chunks_exact(block_size).scan(root, |hash, tokens| {
        *hash = hash.next(tokens);
        Some(*hash)
    })
}

/// Gives blocks back so that the last is evicted first.
fn release(blocks: Vec<BlockId>, pool: &mut BlockPool) -> Result<()> {
    blocks.into_iter().rev().try_for_each(|block| pool.free(block))
}
