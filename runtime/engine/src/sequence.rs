//! One text in the making: its tokens, how many of them went through the model, and the blocks that hold their keys
//! and values.

use crate::error::{Error, Result};
use crate::kv::pool::{BlockId, BlockPool};
use crate::kv::prefix::BlockHash;
use crate::kv::table::BlockTable;
use crate::stop::Finish;
use std::fmt;

/// A token's index in the vocabulary.
pub type TokenId = u32;

/// The name of a sequence, unique in its engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SequenceId(pub u64);

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}", self.0)
    }
}

/// A prompt and what was generated after it. `n_computed` runs after `tokens.len()`: a fresh prompt lacks all its
/// tokens, a sequence that is generating lacks one, and a preempted one lacks all of them again.
#[derive(Clone, PartialEq, Debug)]
pub struct Sequence {
    /// Its name in plans and batches.
    pub id: SequenceId,
    tokens: Vec<TokenId>,
    n_prompt: usize,
    n_computed: usize,
    pub(crate) blocks: BlockTable,
    /// Before the first block's hash.
    root: BlockHash,
    /// Names of its first full blocks.
    hashes: Vec<BlockHash>,
    /// Tokens that other sequences had computed when it ran first.
    n_cached: Option<usize>,
    /// Why it ended; `None` while it goes on.
    pub finish: Option<Finish>,
    /// How many of the largest logits its sampler needs; `None`: all of them.
    pub required_top_k: Option<usize>,
}

impl Sequence {
    /// A sequence that starts with `prompt`, which has at least one token.
    pub fn new(id: SequenceId, prompt: Vec<TokenId>) -> Result<Self> {
        if prompt.is_empty() {
            return Err(Error::NoTokens { id });
        }
        let n_prompt = prompt.len();
        Ok(Self {
            id,
            tokens: prompt,
            n_prompt,
            n_computed: 0,
            blocks: BlockTable::default(),
            root: BlockHash::ROOT,
            hashes: Vec::new(),
            n_cached: None,
            finish: None,
            required_top_k: None,
        })
    }

    /// With blocks that are found only by sequences with the same root: model, adapter and salt.
    pub fn with_root(self, root: BlockHash) -> Self {
        Self { root, ..self }
    }

    /// All known tokens: the prompt, then the generated ones.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The tokens after the prompt.
    pub fn generated(&self) -> &[TokenId] {
        &self.tokens[self.n_prompt..]
    }

    /// How many tokens the prompt has.
    pub fn n_prompt(&self) -> usize {
        self.n_prompt
    }

    /// How many tokens have their keys and values in the cache.
    pub fn n_computed(&self) -> usize {
        self.n_computed
    }

    /// How many of them it found computed when it ran first, by earlier sequences with the same beginning.
    pub fn n_cached(&self) -> usize {
        self.n_cached.unwrap_or(0)
    }

    /// How many known tokens are not computed yet.
    pub fn n_missing(&self) -> usize {
        self.tokens.len() - self.n_computed
    }

    /// The blocks that hold its keys and values.
    pub fn blocks(&self) -> &BlockTable {
        &self.blocks
    }

    /// Appends a generated token.
    pub fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
    }

    /// Appends tokens that count as prompt: the next turn of a chat. What was generated before becomes prompt too.
    pub fn push_prompt(&mut self, tokens: &[TokenId]) {
        self.tokens.extend_from_slice(tokens);
        self.n_prompt = self.tokens.len();
    }

    /// Counts `n_new` more tokens as computed; `true` if all of them are now, so that the last
    /// one's logits predict the next token.
    pub fn advance(&mut self, n_new: usize) -> bool {
        self.n_computed = self.tokens.len().min(self.n_computed + n_new);
        self.n_missing() == 0
    }

    /// For a sequence without blocks: takes those that have its first tokens from the pool. The last token is always
    /// computed, for its logits.
    pub(crate) fn reuse_prefix(&mut self, pool: &mut BlockPool) {
        if !self.blocks.ids().is_empty() {
            return;
        }
        while (self.hashes.len() + 1) * pool.block_size() < self.tokens.len() {
            let hash = self.next_hash(pool.block_size());
            let Some(block) = pool.reuse(hash) else { break };
            self.blocks.push(block);
            self.hashes.push(hash);
        }
        self.n_computed = self.hashes.len() * pool.block_size();
    }

    /// Counts what is computed now as cached, if the sequence runs for the first time.
    pub(crate) fn count_cached(&mut self) {
        self.n_cached.get_or_insert(self.n_computed);
    }

    /// First tokens that it has in common with another.
    pub(crate) fn n_common(&self, other: &Sequence) -> usize {
        self.tokens.iter().zip(&other.tokens).take_while(|(a, b)| a == b).count()
    }

    /// For a sequence without blocks: shares the full blocks of the tokens that it has in common with one of `others`, where
    /// these are computed.
    pub(crate) fn share_common(&mut self, others: &[Sequence], pool: &mut BlockPool) -> Result<()> {
        let n_full = |other: &Sequence| self.n_shareable(other) / pool.block_size();
        let Some(other) = others.iter().max_by_key(|other| n_full(other)) else { return Ok(()) };
        let n = n_full(other);
        self.blocks = other.blocks.share_front(n, pool)?;
        self.hashes = other.hashes[..n.min(other.hashes.len())].to_vec();
        self.n_computed = n * pool.block_size();
        Ok(())
    }

    /// First tokens whose keys and values it can share with another; its last token is always computed, for its logits.
    pub(crate) fn n_shareable(&self, other: &Sequence) -> usize {
        self.n_common(other).min(other.n_computed).min(self.tokens.len() - 1)
    }

    /// The block that its next token is written to, if it is in the table already.
    pub(crate) fn written_block(&self, block_size: usize) -> Option<BlockId> {
        self.blocks.ids().get(self.n_computed / block_size).copied()
    }

    /// Gives it a block of its own in the place of one that it is about to write and that others read: which is copied, and
    /// where.
    pub(crate) fn copy_on_write(&mut self, pool: &mut BlockPool) -> Result<Option<(BlockId, BlockId)>> {
        let Some(from) = self.written_block(pool.block_size()) else { return Ok(None) };
        if pool.n_users(from)? <= 1 {
            return Ok(None);
        }
        let to = pool.alloc().ok_or(Error::OutOfBlocks { id: self.id })?;
        self.blocks.replace(self.n_computed / pool.block_size(), to);
        pool.free(from)?;
        Ok(Some((from, to)))
    }

    /// A second sequence with the same tokens, in the same blocks. Either copies a block before it writes it.
    pub(crate) fn share(&self, id: SequenceId, pool: &mut BlockPool) -> Result<Self> {
        let blocks = self.blocks.share_front(self.blocks.ids().len(), pool)?;
        Ok(Self { id, blocks, ..self.clone() })
    }

    /// Names its full blocks in a pool that does not have the names.
    pub(crate) fn name_again(&self, pool: &mut BlockPool) -> Result<()> {
        self.blocks.ids().iter().zip(&self.hashes).try_for_each(|(block, hash)| pool.name(*block, *hash))
    }

    /// Names its full blocks, so that other sequences can use them.
    pub(crate) fn name_blocks(&mut self, pool: &mut BlockPool) -> Result<()> {
        while (self.hashes.len() + 1) * pool.block_size() <= self.n_computed {
            let hash = self.next_hash(pool.block_size());
            pool.name(self.blocks.ids()[self.hashes.len()], hash)?;
            self.hashes.push(hash);
        }
        Ok(())
    }

    /// The name of the block after those that have one; its tokens are known.
    fn next_hash(&self, block_size: usize) -> BlockHash {
        let before = self.hashes.last().unwrap_or(&self.root);
        before.next(&self.tokens[self.hashes.len() * block_size..][..block_size])
    }

    /// Counts all of its tokens as not computed, though its blocks stay: what they held is lost.
    pub(crate) fn forget_computed(&mut self) {
        self.n_computed = 0;
        self.hashes.clear();
    }

    /// Gives its blocks back; all of its tokens are then missing. For preemption and for the end.
    pub fn release(&mut self, pool: &mut BlockPool) -> Result<()> {
        self.n_computed = 0;
        self.hashes.clear();
        self.blocks.release(pool)
    }

    /// Forgets all tokens after the first `n_kept` and gives back the blocks that only they used. At least one
    /// token stays. New tokens never go into a block that a fork reads: such a block is given back as well.
    pub fn truncate(&mut self, n_kept: usize, pool: &mut BlockPool) -> Result<()> {
        let n_kept = n_kept.max(1);
        self.tokens.truncate(n_kept);
        self.n_prompt = self.n_prompt.min(n_kept);
        self.n_computed = self.n_computed.min(n_kept);

        let n_full = self.n_computed / pool.block_size();
        self.hashes.truncate(n_full);
        if let Some(&begun) = self.blocks.ids().get(n_full) {
            if pool.n_users(begun)? > 1 {
                self.n_computed = n_full * pool.block_size();
            } else if !self.n_computed.is_multiple_of(pool.block_size()) {
                pool.forget(begun)?;
            }
        }
        self.blocks.shrink(self.n_computed, pool)
    }

    /// A second sequence with the same tokens. The two share the blocks that are full, which are never written again;
    /// the tokens after them are computed once more, so no block is ever copied.
    pub fn fork(&self, id: SequenceId, pool: &mut BlockPool) -> Result<Self> {
        let n_full = self.n_computed.min(self.tokens.len() - 1) / pool.block_size();
        let blocks = self.blocks.share_front(n_full, pool)?;
        let hashes = self.hashes[..n_full.min(self.hashes.len())].to_vec();
        Ok(Self { id, n_computed: n_full * pool.block_size(), blocks, hashes, finish: None, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> BlockPool {
        BlockPool::new(8, 4).unwrap()
    }

    fn sequence(n_tokens: u32, n_computed: usize, pool: &mut BlockPool) -> Sequence {
        let mut seq = Sequence::new(SequenceId(1), (0..n_tokens).collect()).unwrap();
        assert!(seq.blocks.grow(n_tokens as usize, pool));
        seq.advance(n_computed);
        seq
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        let error = Sequence::new(SequenceId(3), vec![]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sequence 3 has no tokens: give a prompt, or the beginning-of-text token"
        );
    }

    #[test]
    fn logits_are_due_when_the_last_known_token_was_computed() {
        let mut seq = sequence(5, 0, &mut pool());
        assert!(!seq.advance(4));
        assert!(seq.advance(1));
        seq.push(9);
        assert_eq!((seq.n_missing(), seq.generated()), (1, &[9][..]));
    }

    #[test]
    fn a_fork_shares_full_blocks_and_computes_the_rest_itself() {
        let mut pool = pool();
        let mut seq = sequence(10, 10, &mut pool); // blocks of 4: two full, one with two tokens
        let mut fork = seq.fork(SequenceId(2), &mut pool).unwrap();
        assert_eq!((fork.n_computed(), fork.blocks().ids()), (8, &seq.blocks().ids()[..2]));

        seq.release(&mut pool).unwrap();
        assert_eq!(pool.n_free(), 6, "the shared blocks stay in use");
        fork.release(&mut pool).unwrap();
        assert_eq!(pool.n_free(), 8);
    }

    #[test]
    fn a_fork_always_lacks_a_token_so_that_it_gets_logits_of_its_own() {
        let mut pool = pool();
        let fork = sequence(8, 8, &mut pool).fork(SequenceId(2), &mut pool).unwrap();
        assert_eq!(fork.n_missing(), 4);
    }

    #[test]
    fn truncating_gives_back_the_blocks_of_the_forgotten_tokens() {
        let mut pool = pool();
        let mut seq = sequence(10, 10, &mut pool);
        seq.truncate(5, &mut pool).unwrap();
        assert_eq!((seq.tokens().len(), seq.n_computed(), pool.n_free()), (5, 5, 6));
        seq.truncate(0, &mut pool).unwrap();
        assert_eq!(seq.tokens(), [0]);
    }

    #[test]
    fn truncating_leaves_a_block_to_the_fork_that_reads_it() {
        let mut pool = pool();
        let mut seq = sequence(10, 10, &mut pool);
        let fork = seq.fork(SequenceId(2), &mut pool).unwrap();
        seq.truncate(6, &mut pool).unwrap();
        assert_eq!((seq.n_computed(), seq.blocks().ids().len()), (4, 1));
        assert_eq!(pool.n_users(fork.blocks().ids()[1]), Ok(1));
    }
}
