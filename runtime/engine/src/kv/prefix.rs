//! Contents of blocks that can be used again. A full block is named by a hash of its tokens and of all tokens before
//! them, since keys and values depend on both (the prefix cache of vLLM, with its chained hashes).

use super::pool::BlockId;
use crate::sequence::TokenId;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};

/// Name of a full block's contents: SHA-256 of the name of the block before it, and of its tokens. Tokens decide who reads
/// whose keys, so collisions must not be found on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockHash([u8; 32]);

impl BlockHash {
    /// Before the first block.
    pub const ROOT: BlockHash = BlockHash([0; 32]);

    /// The name of the block with `tokens` after the block with this name.
    pub fn next(self, tokens: &[TokenId]) -> BlockHash {
        let mut hash = Sha256::new_with_prefix(self.0);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        BlockHash(hash.finalize().into())
    }

    /// Before the first block of the requests with this salt.
    pub fn of_salt(salt: &str) -> BlockHash {
        match salt.as_bytes() {
            [] => BlockHash::ROOT,
            salt => BlockHash::ROOT.next(&salt.iter().map(|byte| TokenId::from(*byte)).collect::<Vec<_>>()),
        }
    }

    /// The names of the full blocks of a text, which begins after this name.
    pub fn of_blocks(self, tokens: &[TokenId], block_size: usize) -> Vec<BlockHash> {
        let next = |name: &mut BlockHash, block: &[TokenId]| {
            *name = name.next(block);
            Some(*name)
        };
        tokens.chunks_exact(block_size).scan(self, next).collect()
    }

    /// Its first 64 bits, little-endian: short enough for lists of what a cache holds, to choose between caches by.
    pub fn short(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(bytes)
    }
}

/// Which block has which contents, and which of them no table uses.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct PrefixCache {
    blocks: HashMap<BlockHash, BlockId>,
    /// By block.
    entries: Vec<Entry>,
    /// Named blocks without users, by the time they lost the last one: the first is evicted first.
    unused: BTreeMap<u64, BlockId>,
    now: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Entry {
    hash: Option<BlockHash>,
    unused_since: u64,
}

impl PrefixCache {
    pub fn new(n_blocks: usize) -> PrefixCache {
        PrefixCache { entries: vec![Entry::default(); n_blocks], ..PrefixCache::default() }
    }

    /// Named blocks that no table uses.
    pub fn n_unused(&self) -> usize {
        self.unused.len()
    }

    /// Those, the one to evict next first.
    #[cfg(test)]
    pub fn unused(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.unused.values().copied()
    }

    /// All names, in no order.
    pub fn names(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.blocks.keys().copied()
    }

    /// The block with these contents.
    pub fn find(&self, hash: BlockHash) -> Option<BlockId> {
        self.blocks.get(&hash).copied()
    }

    /// Names the contents of a block in use. Contents that another block has as well keep that one: `false`.
    pub fn name(&mut self, block: BlockId, hash: BlockHash) -> bool {
        let entry = &mut self.entries[block.0 as usize];
        let is_new = entry.hash.is_none() && !self.blocks.contains_key(&hash);
        if is_new {
            entry.hash = Some(hash);
            self.blocks.insert(hash, block);
        }
        is_new
    }

    /// Names the contents of a block in use, whatever had the name before; that block, if it was kept for it.
    pub fn take_name(&mut self, block: BlockId, hash: BlockHash) -> Option<BlockId> {
        let before = self.find(hash).filter(|before| *before != block);
        let kept = before.and_then(|before| {
            self.forget(before);
            self.unused.remove(&self.entries[before.0 as usize].unused_since)
        });
        self.forget(block);
        self.name(block, hash);
        kept
    }

    /// The contents of a block are no longer what its name states.
    pub fn forget(&mut self, block: BlockId) {
        if let Some(hash) = self.entries[block.0 as usize].hash.take() {
            self.blocks.remove(&hash);
        }
    }

    /// Keeps a block that lost its last user, if it is named.
    pub fn keep(&mut self, block: BlockId) -> bool {
        let entry = &mut self.entries[block.0 as usize];
        if entry.hash.is_some() {
            self.now += 1;
            entry.unused_since = self.now;
            self.unused.insert(self.now, block);
        }
        entry.hash.is_some()
    }

    /// A kept block has a user again.
    pub fn take(&mut self, block: BlockId) {
        self.unused.remove(&self.entries[block.0 as usize].unused_since);
    }

    /// Gives up the block that was used least recently.
    pub fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.unused.pop_first()?;
        self.forget(block);
        Some(block)
    }

    /// Forgets all contents; returns the blocks that were kept, the one used least recently first.
    pub fn clear(&mut self) -> Vec<BlockId> {
        self.blocks.clear();
        self.entries.fill(Entry::default());
        std::mem::take(&mut self.unused).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_block_depends_on_all_tokens_before_it() {
        let of =
            |blocks: &[[TokenId; 2]]| blocks.iter().fold(BlockHash::ROOT, |hash, block| hash.next(block));
        assert_eq!(of(&[[1, 2], [3, 4]]), of(&[[1, 2], [3, 4]]));
        assert_ne!(of(&[[1, 2], [3, 4]]), of(&[[2, 1], [3, 4]]));
        assert_ne!(of(&[[3, 4]]), of(&[[1, 2], [3, 4]]));
        // 256 in little endian is not 0 and 1 as bytes of other tokens.
        assert_ne!(of(&[[256, 0]]), of(&[[0, 1]]));
    }
}
