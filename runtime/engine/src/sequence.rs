//! One text in the making: its tokens, how many of them went through the model, and the blocks that hold their keys
//! and values.

use crate::error::{Error, Result};
use crate::kv::pool::{BlockId, BlockPool};
use crate::kv::pools::{CacheMoves, CachePools};
use crate::kv::prefix::BlockHash;
use crate::kv::table::BlockTable;
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
    /// The slot with the recurrent state of its computed tokens, in models with such states.
    state: Option<BlockId>,
    /// The slot that the step in flight writes its next state to.
    next_state: Option<BlockId>,
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
            state: None,
            next_state: None,
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

    /// Counts `n_new` more tokens as computed.
    pub fn advance(&mut self, n_new: usize) {
        self.n_computed = self.tokens.len().min(self.n_computed + n_new);
    }

    /// Slots of its recurrent state that a step reads and writes; none to read before its first token.
    pub fn state_slots(&self) -> (Option<BlockId>, Option<BlockId>) {
        (self.state, self.next_state)
    }

    /// Takes the slot that the next step writes its state to, in a model with states. What the step reads stays until
    /// [`Sequence::commit_state`], so that it can be repeated.
    pub(crate) fn begin_state(&mut self, states: &mut BlockPool) -> Result<()> {
        if states.n_blocks() > 0 && self.next_state.is_none() {
            self.next_state = Some(states.alloc().ok_or(Error::OutOfBlocks { id: self.id })?);
        }
        Ok(())
    }

    /// What the step wrote is the state of the computed tokens.
    pub(crate) fn commit_state(&mut self, states: &mut BlockPool) -> Result<()> {
        let Some(written) = self.next_state.take() else { return Ok(()) };
        self.state.replace(written).map_or(Ok(()), |read| states.free(read))
    }

    /// What the step wrote, if anything, does not count.
    pub(crate) fn discard_state(&mut self, states: &mut BlockPool) -> Result<()> {
        self.next_state.take().map_or(Ok(()), |written| states.free(written))
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
        let n_full = self.hashes.len() * pool.block_size();
        let rest = &self.tokens[n_full..self.tokens.len() - 1];
        let tail = pool.take_tail(self.last_hash(), rest);
        self.n_computed = n_full + tail.map_or(0, |(_, n)| n);
        tail.into_iter().for_each(|(block, _)| self.blocks.push(block));
    }

    /// The name of its last full block.
    fn last_hash(&self) -> BlockHash {
        *self.hashes.last().unwrap_or(&self.root)
    }

    /// Before its end: names the tokens of its last block, which is not full, for the sequence that goes on after them.
    pub(crate) fn name_tail(&self, pool: &mut BlockPool) -> Result<()> {
        let n_full = self.hashes.len();
        let tail = &self.tokens[n_full * pool.block_size()..self.n_computed];
        match self.blocks.ids().get(n_full) {
            Some(block) if !tail.is_empty() => pool.name(*block, self.last_hash().next(tail)),
            _ => Ok(()),
        }
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
    /// None where the other has a state, which is of all its tokens.
    pub(crate) fn n_shareable(&self, other: &Sequence) -> usize {
        let n_computed = if other.state.is_some() { 0 } else { other.n_computed };
        self.n_common(other).min(n_computed).min(self.tokens.len() - 1)
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

    /// A second sequence with the same tokens, in the same blocks, which reads the same state. Either copies a block before
    /// it writes it; a state is never written in place.
    pub(crate) fn share(&self, id: SequenceId, pools: &mut CachePools) -> Result<Self> {
        let blocks = self.blocks.share_front(self.blocks.ids().len(), &mut pools.blocks)?;
        self.state.map_or(Ok(()), |state| pools.states.share(state))?;
        Ok(Self { id, blocks, next_state: None, ..self.clone() })
    }

    /// Moves its blocks and its state between pools, where as many are free. `moves` are those of sequences that share with
    /// it: what is shared moves once.
    pub(crate) fn relocate(
        &mut self,
        from: &mut CachePools,
        to: &mut CachePools,
        moves: &mut CacheMoves,
    ) -> Result<()> {
        self.blocks.relocate(&mut from.blocks, &mut to.blocks, &mut moves.blocks)?;
        let Some(state) = self.state else { return Ok(()) };
        let mut table = BlockTable::default();
        table.push(state);
        table.relocate(&mut from.states, &mut to.states, &mut moves.states)?;
        self.state = table.ids().first().copied();
        Ok(())
    }

    /// A bug: the next step writes the slot that it reads.
    #[cfg(test)]
    pub(crate) fn write_state_in_place(&mut self) {
        if self.state.is_some() && self.next_state.is_some() {
            self.next_state = self.state;
        }
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
        self.last_hash().next(&self.tokens[self.hashes.len() * block_size..][..block_size])
    }

    /// Gives its blocks and its state back; all of its tokens are then missing. For preemption and for the end.
    pub(crate) fn release(&mut self, pools: &mut CachePools) -> Result<()> {
        self.n_computed = 0;
        self.hashes.clear();
        self.discard_state(&mut pools.states)?;
        self.state.take().map_or(Ok(()), |state| pools.states.free(state))?;
        self.blocks.release(&mut pools.blocks)
    }

    /// Puts other tokens in the place of its own; none of them is computed. For a context shift.
    pub(crate) fn replace(&mut self, tokens: Vec<TokenId>, pools: &mut CachePools) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::NoTokens { id: self.id });
        }
        self.release(pools)?;
        (self.n_prompt, self.tokens) = (tokens.len(), tokens);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_prompt_is_refused() {
        let error = Sequence::new(SequenceId(3), vec![]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sequence 3 has no tokens: give a prompt, or the beginning-of-text token"
        );
    }

    #[test]
    fn a_step_reads_one_state_and_writes_another_until_it_counts() {
        let mut pools = CachePools::new(1, 3, 4).unwrap();
        let mut seq = Sequence::new(SequenceId(1), vec![5, 6, 7]).unwrap();
        let mut step = |seq: &mut Sequence, counts: bool| {
            seq.begin_state(&mut pools.states).unwrap();
            let slots = seq.state_slots();
            match counts {
                true => seq.commit_state(&mut pools.states).unwrap(),
                false => seq.discard_state(&mut pools.states).unwrap(),
            }
            (slots.0.map(|s| s.0), slots.1.map(|s| s.0))
        };
        assert_eq!(step(&mut seq, false), (None, Some(0)));
        assert_eq!(step(&mut seq, true), (None, Some(0)));
        assert_eq!(step(&mut seq, false), (Some(0), Some(1)), "repeated");
        assert_eq!(step(&mut seq, true), (Some(0), Some(1)));
        assert_eq!(step(&mut seq, true), (Some(1), Some(0)));
        let mut child = seq.share(SequenceId(2), &mut pools).unwrap();
        seq.begin_state(&mut pools.states).unwrap();
        seq.commit_state(&mut pools.states).unwrap();
        assert_eq!(child.state_slots().0, Some(BlockId(0)), "a fork reads the state that its parent had");
        seq.release(&mut pools).unwrap();
        child.release(&mut pools).unwrap();
        assert_eq!(pools.states.n_used(), 0);
    }
}
