//! One text in the making: its tokens, how many of them went through the model, and the blocks that hold their keys
//! and values.

use crate::error::{Error, Result};
use crate::kv::pool::{BlockId, BlockPool};
use crate::kv::pools::{CacheMoves, CachePools};
use crate::kv::prefix::BlockHash;
use crate::kv::table::BlockTable;
use crate::scheduler::BlockMove;
use std::fmt;
use std::sync::Arc;

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
    /// Guesses of the tokens after them, which the next step computes too.
    drafts: Vec<TokenId>,
    /// What an encoder reads in the step that computes its first token, in models that have one.
    encoder_tokens: Arc<[TokenId]>,
    n_prompt: usize,
    n_computed: usize,
    blocks: BlockTable,
    /// The same in the caches of each window, without those that no token will read.
    windows: Vec<BlockTable>,
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
            drafts: Vec::new(),
            encoder_tokens: Arc::default(),
            n_prompt,
            n_computed: 0,
            blocks: BlockTable::default(),
            windows: Vec::new(),
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

    /// With a text for the encoder.
    pub fn with_encoder_tokens(self, encoder_tokens: Arc<[TokenId]>) -> Self {
        Self { encoder_tokens, ..self }
    }

    /// The text that the encoder reads in the step of the first token, or again after a preemption; empty without one.
    pub fn encoder_tokens(&self) -> &[TokenId] {
        &self.encoder_tokens
    }

    /// Tokens that the encoder reads in the next step.
    pub fn n_to_encode(&self) -> usize {
        if self.n_computed == 0 { self.encoder_tokens.len() } else { 0 }
    }

    /// Tokens that it has room for in its blocks: its own with the drafted ones, and what cross attention sees of the
    /// encoder's, which is beside them in the same blocks.
    pub(crate) fn n_slots(&self) -> usize {
        (self.tokens.len() + self.drafts.len()).max(self.encoder_tokens.len())
    }

    /// All known tokens: the prompt, then the generated ones.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// What its blocks are named from.
    pub(crate) fn root(&self) -> BlockHash {
        self.root
    }

    /// Guesses of the tokens after the known ones, for the next step.
    pub fn drafts(&self) -> &[TokenId] {
        &self.drafts
    }

    /// A token by its position: a known one, or a guess.
    pub fn token(&self, position: usize) -> Option<TokenId> {
        self.tokens.iter().chain(&self.drafts).nth(position).copied()
    }

    /// Puts guesses after the known tokens, in the place of earlier ones.
    pub(crate) fn set_drafts(&mut self, drafts: Vec<TokenId>) {
        self.drafts = drafts;
    }

    /// Leaves out the guesses after the first `n`.
    pub(crate) fn keep_drafts(&mut self, n: usize) {
        self.drafts.truncate(n);
    }

    /// The first `n` guesses are known tokens now, and there are no others.
    pub(crate) fn accept(&mut self, n: usize) {
        self.tokens.extend(self.drafts.drain(..).take(n));
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

    /// Its blocks in the caches of layers that see whole contexts, then in those of each window.
    pub fn tables(&self) -> impl Iterator<Item = &BlockTable> {
        std::iter::once(&self.blocks).chain(&self.windows)
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

    /// For a sequence without blocks: takes those that have its first tokens from the pools. The last token is always
    /// computed, for its logits.
    pub(crate) fn reuse_prefix(&mut self, pools: &mut CachePools) -> Result<()> {
        if !self.blocks.ids().is_empty() {
            return Ok(());
        }
        let size = pools.blocks.block_size();
        while (self.hashes.len() + 1) * size < self.tokens.len() {
            let hash = self.next_hash(size);
            let Some(block) = pools.blocks.reuse(hash) else { break };
            self.blocks.push(block);
            self.hashes.push(hash);
        }
        self.hashes.truncate(pools.n_readable(&self.hashes));
        let n_full = self.hashes.len() * size;
        self.blocks.shrink(n_full, &mut pools.blocks)?;
        self.windows = pools.windows.iter_mut().map(|window| window.reuse(&self.hashes)).collect();
        let rest = &self.tokens[n_full..self.tokens.len() - 1];
        let (n_tail, tail) = pools.take_tail(self.last_hash(), rest).unwrap_or_default();
        self.n_computed = n_full + n_tail;
        std::iter::once(&mut self.blocks).chain(&mut self.windows).zip(tail).for_each(|(t, b)| t.push(b));
        Ok(())
    }

    /// Takes blocks for all its known tokens, in the caches of windows for the next `max_new` tokens; `false`: there are too
    /// few.
    pub(crate) fn grow(&mut self, max_new: usize, pools: &mut CachePools) -> bool {
        let n_tokens = self.n_slots();
        let n_next = n_tokens.min(self.n_computed.saturating_add(max_new));
        self.windows.resize(pools.windows.len(), BlockTable::default());
        let mut windows = pools.windows.iter_mut().zip(&mut self.windows);
        self.blocks.grow(n_tokens, &mut pools.blocks)
            && windows.all(|(window, table)| table.grow(n_next, &mut window.blocks))
    }

    /// Gives back the blocks after its known tokens: those of guesses that were wrong.
    pub(crate) fn shrink(&mut self, pools: &mut CachePools) -> Result<()> {
        let n_slots = self.n_slots();
        let mut windows = pools.windows.iter_mut().zip(&mut self.windows);
        windows.try_for_each(|(window, table)| table.shrink(n_slots, &mut window.blocks))?;
        self.blocks.shrink(n_slots, &mut pools.blocks)
    }

    /// Gives back the blocks that no window sees any more.
    pub(crate) fn leave_windows(&mut self, pools: &mut CachePools) -> Result<()> {
        let mut windows = pools.windows.iter_mut().zip(&mut self.windows);
        windows.try_for_each(|(window, table)| {
            table.leave(window.first_block(self.n_computed), &mut window.blocks)
        })
    }

    /// The name of its last full block.
    fn last_hash(&self) -> BlockHash {
        *self.hashes.last().unwrap_or(&self.root)
    }

    /// Before its end: names the tokens of its last block, which is not full, for the sequence that goes on after them.
    pub(crate) fn name_tail(&self, pools: &mut CachePools) -> Result<()> {
        let n_full = self.hashes.len();
        match &self.tokens[n_full * pools.blocks.block_size()..self.n_computed] {
            [] => Ok(()),
            tail => self.name_block(n_full, self.last_hash().next(tail), pools),
        }
    }

    /// Names block `i` in all pools. In those of windows names follow those of whole contexts: sequences that share a block
    /// there share it here, so that windows never take more blocks.
    fn name_block(&self, i: usize, hash: BlockHash, pools: &mut CachePools) -> Result<()> {
        let Some(block) = self.blocks.get(i) else { return Ok(()) };
        if !pools.blocks.name(block, hash)? {
            return Ok(());
        }
        let mut windows = pools.windows.iter_mut().zip(&self.windows);
        windows.try_for_each(|(window, table)| match table.get(i) {
            Some(block) => window.blocks.take_name(block, hash),
            None => Ok(()),
        })
    }

    /// Counts what is computed now as cached, if the sequence runs for the first time.
    pub(crate) fn count_cached(&mut self) {
        self.n_cached.get_or_insert(self.n_computed);
    }

    /// First tokens that it has in common with others.
    pub(crate) fn n_common(&self, others: &[TokenId]) -> usize {
        self.tokens.iter().zip(others).take_while(|(a, b)| a == b).count()
    }

    /// For a sequence without blocks: shares the full blocks of the tokens that it has in common with one of `others`, where
    /// these are computed.
    pub(crate) fn share_common(&mut self, others: &[Sequence], pools: &mut CachePools) -> Result<()> {
        let n_full = |other: &Sequence| self.n_shareable_blocks(other, pools);
        let Some(other) = others.iter().max_by_key(|other| n_full(other)) else { return Ok(()) };
        let n = n_full(other);
        self.n_computed = n * pools.blocks.block_size();
        self.blocks = other.blocks.share(0..n, &mut pools.blocks)?;
        let windows = pools.windows.iter_mut().zip(&other.windows);
        let shared = windows.map(|(window, table)| {
            table.share(window.first_block(self.n_computed).min(n)..n, &mut window.blocks)
        });
        self.windows = shared.collect::<Result<_>>()?;
        self.hashes = other.hashes[..n.min(other.hashes.len())].to_vec();
        Ok(())
    }

    /// First full blocks that it can share with another; its last token is always computed, for its logits. None where the
    /// other has a state, which is of all its tokens, or what an encoder read, or has given back what a window sees at their end.
    pub(crate) fn n_shareable_blocks(&self, other: &Sequence, pools: &CachePools) -> usize {
        let size = pools.blocks.block_size();
        let is_whole = other.state.is_some() || !other.encoder_tokens.is_empty();
        let n_computed = if is_whole { 0 } else { other.n_computed };
        let n = self.n_common(&other.tokens).min(n_computed).min(self.tokens.len() - 1) / size;
        let mut windows = pools.windows.iter().zip(&other.windows);
        let is_held = windows.all(|(window, table)| table.n_left() <= window.first_block(n * size));
        if is_held { n } else { 0 }
    }

    /// The block that its next token is written to, if it is in the table already.
    pub(crate) fn written_block(&self, block_size: usize) -> Option<BlockId> {
        self.blocks.get(self.n_computed / block_size)
    }

    /// Gives it blocks of its own in the place of those that it is about to write and that others read; what is copied is
    /// added to `copies`.
    pub(crate) fn copy_on_write(&mut self, pools: &mut CachePools, copies: &mut CacheMoves) -> Result<()> {
        let (id, i) = (self.id, self.n_computed / pools.blocks.block_size());
        let own = |table: &mut BlockTable, pool: &mut BlockPool, copies: &mut Vec<BlockMove>| -> Result<()> {
            let Some(from) = table.get(i) else { return Ok(()) };
            if pool.n_users(from)? > 1 {
                let to = pool.alloc().ok_or(Error::OutOfBlocks { id })?;
                table.replace(i, to, pool)?;
                copies.push(BlockMove { from, to });
            }
            Ok(())
        };
        own(&mut self.blocks, &mut pools.blocks, &mut copies.blocks)?;
        for (w, (window, table)) in pools.windows.iter_mut().zip(&mut self.windows).enumerate() {
            own(table, &mut window.blocks, copies.of_window(w))?;
        }
        Ok(())
    }

    /// A second sequence with the same tokens, in the same blocks, which reads the same state. Either copies a block before
    /// it writes it; a state is never written in place.
    pub(crate) fn share(&self, id: SequenceId, pools: &mut CachePools) -> Result<Self> {
        let all = |table: &BlockTable, pool: &mut BlockPool| table.share(table.n_left()..table.end(), pool);
        let blocks = all(&self.blocks, &mut pools.blocks)?;
        let windows = pools.windows.iter_mut().zip(&self.windows);
        let windows = windows.map(|(window, table)| all(table, &mut window.blocks)).collect::<Result<_>>()?;
        self.state.map_or(Ok(()), |state| pools.states.share(state))?;
        Ok(Self { id, blocks, windows, next_state: None, ..self.clone() })
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
        let windows = from.windows.iter_mut().zip(&mut to.windows);
        for (w, ((from, to), table)) in windows.zip(&mut self.windows).enumerate() {
            table.relocate(&mut from.blocks, &mut to.blocks, moves.of_window(w))?;
        }
        let Some(state) = self.state else { return Ok(()) };
        let mut table = BlockTable::default();
        table.push(state);
        table.relocate(&mut from.states, &mut to.states, &mut moves.states)?;
        self.state = table.ids().first().copied();
        Ok(())
    }

    /// A bug: blocks are given back one token too early.
    #[cfg(test)]
    pub(crate) fn leave_too_early(&mut self, pools: &mut CachePools) -> Result<()> {
        self.n_computed += 1;
        let outcome = self.leave_windows(pools);
        self.n_computed -= 1;
        outcome
    }

    /// A bug: the next step writes the slot that it reads.
    #[cfg(test)]
    pub(crate) fn write_state_in_place(&mut self) {
        if self.state.is_some() && self.next_state.is_some() {
            self.next_state = self.state;
        }
    }

    /// Names its full blocks in pools that do not have the names.
    pub(crate) fn name_again(&self, pools: &mut CachePools) -> Result<()> {
        self.hashes.iter().enumerate().try_for_each(|(i, hash)| self.name_block(i, *hash, pools))
    }

    /// Names its full blocks, so that other sequences can use them.
    pub(crate) fn name_blocks(&mut self, pools: &mut CachePools) -> Result<()> {
        let size = pools.blocks.block_size();
        while (self.hashes.len() + 1) * size <= self.n_computed {
            let hash = self.next_hash(size);
            self.name_block(self.hashes.len(), hash, pools)?;
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
        self.keep_drafts(0);
        self.discard_state(&mut pools.states)?;
        self.state.take().map_or(Ok(()), |state| pools.states.free(state))?;
        let mut windows = pools.windows.iter_mut().zip(&mut self.windows);
        windows.try_for_each(|(window, table)| table.release(&mut window.blocks))?;
        self.blocks.release(&mut pools.blocks)
    }

    /// Of other tokens, the first ones that it has computed and could go on after: none where it has a state, or has given back
    /// what a window sees at their end. The last one is always computed, for its logits.
    pub(crate) fn n_kept_of(&self, tokens: &[TokenId], pools: &CachePools) -> usize {
        let n_kept = self.n_common(tokens).min(self.n_computed).min(tokens.len().saturating_sub(1));
        let mut windows = pools.windows.iter().zip(&self.windows);
        let is_held = windows.all(|(window, table)| table.n_left() <= window.first_block(n_kept));
        if is_held && self.state.is_none() && self.encoder_tokens.is_empty() { n_kept } else { 0 }
    }

    /// Puts other tokens in the place of its own, and keeps the first `n_kept` computed, which [`Sequence::n_kept_of`] them are.
    pub(crate) fn go_on_after(
        &mut self,
        tokens: Vec<TokenId>,
        n_kept: usize,
        pools: &mut CachePools,
    ) -> Result<()> {
        let size = pools.blocks.block_size();
        (self.n_prompt, self.tokens, self.n_computed) = (tokens.len(), tokens, n_kept);
        self.keep_drafts(0);
        self.hashes.truncate(n_kept / size);
        // The last block is written next: its name would be of other contents. One that others read is copied then.
        let end = |table: &mut BlockTable, pool: &mut BlockPool| -> Result<()> {
            table.shrink(n_kept, pool)?;
            match table.get(n_kept / size) {
                Some(block) if pool.n_users(block)? == 1 => pool.forget(block),
                _ => Ok(()),
            }
        };
        end(&mut self.blocks, &mut pools.blocks)?;
        let mut windows = pools.windows.iter_mut().zip(&mut self.windows);
        windows.try_for_each(|(window, table)| end(table, &mut window.blocks))
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
