//! Prefixes that a caller reads from the cache, or puts there.

use super::Scheduler;
use crate::error::Result;
use crate::kv::pool::{BlockId, BlockPool};
use crate::kv::prefix::BlockHash;
use crate::sequence::TokenId;

impl Scheduler {
    /// The blocks of a text's first tokens, and how many tokens these are: as many as the prefix cache has.
    pub fn cached_prefix(&self, root: BlockHash, tokens: &[TokenId]) -> (Vec<BlockId>, usize) {
        let (pool, size) = (&self.device.blocks, self.device.blocks.block_size());
        let full = names(root, tokens, size).filter(|(_, n)| *n == size);
        let found = full.map_while(|(hash, _)| Some((hash, pool.find(hash)?)));
        let (hashes, mut blocks): (Vec<_>, Vec<_>) = found.unzip();
        let n_full = blocks.len() * size;
        let (last, rest) = (hashes.last().copied().unwrap_or(root), &tokens[n_full..]);
        let tail = pool.tails(last, rest).next();
        blocks.extend(tail.map(|(_, block, _)| block));
        (blocks, n_full + tail.map_or(0, |(_, _, n)| n))
    }

    /// Keeps blocks of a text's tokens in the prefix cache, as many as have room. `write` fills those that it does not have
    /// yet; where it fails, that block is not kept. Returns how many tokens there are then.
    pub fn insert_prefix(
        &mut self,
        root: BlockHash,
        tokens: &[TokenId],
        write: &mut dyn FnMut(usize, BlockId) -> Result<()>,
    ) -> Result<usize> {
        let pool = &mut self.device.blocks;
        let mut taken = Vec::new();
        let mut outcome = Ok(());
        let mut n_tokens = 0;
        for (i, (hash, n)) in names(root, tokens, pool.block_size()).enumerate() {
            let Some(block) = pool.reuse(hash).or_else(|| pool.alloc()) else { break };
            taken.push(block);
            n_tokens += n;
            if pool.find(hash) != Some(block) {
                outcome = write(i, block).and_then(|()| pool.name(block, hash)).map(drop);
            }
            if outcome.is_err() {
                break;
            }
        }
        release(taken, pool)?;
        outcome.map(|()| n_tokens)
    }
}

/// The names of a text's blocks, with the tokens of each; the last may not be full.
fn names(root: BlockHash, tokens: &[TokenId], block_size: usize) -> impl Iterator<Item = (BlockHash, usize)> {
    tokens.chunks(block_size).scan(root, |hash, tokens| {
        *hash = hash.next(tokens);
        Some((*hash, tokens.len()))
    })
}

/// Gives blocks back so that the last is evicted first.
fn release(blocks: Vec<BlockId>, pool: &mut BlockPool) -> Result<()> {
    blocks.into_iter().rev().try_for_each(|block| pool.free(block))
}
