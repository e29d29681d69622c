//! From a plan to the arrays of a step: what the graph reads as input tensors.

mod ahead;
mod pad;

pub use ahead::Ahead;
pub use pad::Padding;
pub(crate) use pad::table_width;

use crate::error::{Error, Result};
use crate::kv::pool::{BlockId, BlockPool};
use crate::kv::pools::CachePools;
use crate::scheduler::ScheduledChunk;
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_models::Input;
use llmrt_models::config::{MAX_NGRAM, NgramConfig};
use std::borrow::Cow;

/// The tokens of one step, those of one sequence beside each other. Indices are i32, the type of graph inputs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Token ids, `[n_tokens]`.
    pub tokens: Vec<i32>,
    /// The tokens before each in its sequence, the nearest first, -1 where there is none, `[MAX_NGRAM - 1, n_tokens]`.
    pub before: Vec<i32>,
    /// Each token's position in its sequence, `[n_tokens]`.
    pub positions: Vec<i32>,
    /// Where keys and values are: in the caches of layers that see whole contexts first, then in those of each window.
    pub paged: Vec<PagedArrays>,
    /// Tokens of each sequence in the cache after this step, `[n_seqs]`.
    pub seq_lens: Vec<i32>,
    /// Index of each sequence's first token, then `n_tokens`, `[n_seqs + 1]`.
    pub query_starts: Vec<i32>,
    /// The sequences, `[n_seqs]`.
    pub ids: Vec<SequenceId>,
    /// Slots of recurrent states that are read, then those that are written, `[n_seqs, 2]`; -1: none.
    pub state_slots: Vec<i32>,
    /// Indices of the tokens whose logits are requested, ascending, `[n_outputs]`.
    pub output_ids: Vec<i32>,
    /// What an encoder reads; without one empty.
    pub encoder: EncoderArrays,
    /// Whose logits each row of the result is, `[n_outputs]`.
    pub rows: Vec<OutputRow>,
    /// Bits of the hidden states that layers which predict ahead take, F32 `[n, n_tokens]`; in other steps empty.
    pub hidden: Vec<i32>,
    /// Length of a row of the block table.
    pub max_blocks: usize,
}

/// The texts that an encoder reads in a step, and where what cross attention sees of those and earlier ones is.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct EncoderArrays {
    /// Token ids, `[n_encoder_tokens]`.
    pub tokens: Vec<i32>,
    /// Where each one's key and value for cross attention go, `[n_encoder_tokens]`.
    pub slots: Vec<i32>,
    /// Which of them are each sequence's, 0 after the last, `[max_tokens, n_seqs]`.
    pub table: Vec<i32>,
    /// Index of each sequence's first one, then `n_encoder_tokens`, `[n_seqs + 1]`.
    pub starts: Vec<i32>,
    /// Tokens of each sequence's text, whenever the encoder read it, `[n_seqs]`.
    pub lens: Vec<i32>,
    /// Length of a row of the table.
    pub max_tokens: usize,
}

/// Where the tokens of a step are in the caches of layers with one window.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PagedArrays {
    /// Tokens that attention sees, the query included; 0: all.
    pub window: usize,
    /// Blocks of the pool; those of padding come after them.
    pub n_blocks: usize,
    /// Where each token's key and value go in the cache: block · block_size + offset, `[n_tokens]`.
    pub slots: Vec<i32>,
    /// Blocks of each sequence in the order of its tokens, 0 after the last and for those before the window,
    /// `[max_blocks, n_seqs]` with the blocks of one sequence beside each other.
    pub block_table: Vec<i32>,
}

/// What a row of logits follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputRow {
    /// The sequence.
    pub id: SequenceId,
    /// Position of the token whose logits these are: they predict the token at `position + 1`.
    pub position: usize,
}

impl Batch {
    /// The arrays for chunks of sequences, which `find` finds with the position from which their logits are requested; those
    /// of a sequence's last known token, from which the next one is picked, and of drafted ones always are. Block tables have at most `max_blocks`
    /// columns.
    pub fn new<'s>(
        chunks: &[ScheduledChunk],
        find: impl Fn(SequenceId) -> Option<(&'s Sequence, Option<usize>)>,
        pools: &CachePools,
        max_blocks: usize,
    ) -> Result<Self> {
        let end = |chunk: &ScheduledChunk| {
            let end = |seq: &Sequence| (seq.n_computed() + chunk.n_new).max(seq.encoder_tokens().len());
            find(chunk.id).map_or(0, |(seq, _)| end(seq))
        };
        let longest = chunks.iter().map(end).max().unwrap_or(0);
        let max_blocks = table_width(pools.blocks.blocks_for(longest), pools.blocks.block_size(), max_blocks);
        let mut batch = Self::empty(pools, max_blocks);
        let to_encode = chunks.iter().filter_map(|chunk| Some(find(chunk.id)?.0.n_to_encode()));
        let max_to_encode = to_encode.max().unwrap_or(0);
        batch.encoder = EncoderArrays {
            starts: vec![0],
            max_tokens: if max_to_encode > 0 { max_to_encode.next_power_of_two() } else { 0 },
            ..EncoderArrays::default()
        };
        let mut written = Vec::new();
        for chunk in chunks {
            let (seq, logits_from) = find(chunk.id).ok_or(Error::UnknownSequence { id: chunk.id })?;
            batch.push(seq, chunk, pools.blocks.block_size(), logits_from)?;
            batch.encoder.push(seq, pools.blocks.block_size())?;
            let slot = |slot: Option<BlockId>| slot.map_or(-1, |slot| index(slot.0 as usize));
            let (read, write) = seq.state_slots();
            batch.state_slots.push(slot(read));
            written.push(slot(write));
        }
        batch.state_slots.extend(written);
        Ok(batch)
    }

    /// Nothing yet, for tables of so many columns.
    fn empty(pools: &CachePools, max_blocks: usize) -> Self {
        let arrays = |(window, pool): (usize, &BlockPool)| PagedArrays {
            window,
            n_blocks: pool.n_blocks(),
            ..PagedArrays::default()
        };
        let paged = pools.paged().map(arrays).collect();
        Self { query_starts: vec![0], max_blocks, paged, ..Self::default() }
    }

    /// Tokens in the step.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Sequences in the step.
    pub fn n_seqs(&self) -> usize {
        self.seq_lens.len()
    }

    /// Rows of logits that come back.
    pub fn n_outputs(&self) -> usize {
        self.output_ids.len()
    }

    /// What an input of the graph of a model with these n-grams reads.
    pub(crate) fn values(&self, input: Input, ngrams: &NgramConfig) -> Cow<'_, [i32]> {
        match input {
            Input::NgramRows(_) => {
                let tokens = self.tokens.iter().zip(self.before.chunks_exact(MAX_NGRAM - 1));
                tokens.flat_map(|(&token, before)| ngrams.rows(token, before)).collect()
            }
            _ => Cow::Borrowed(self.array(input)),
        }
    }

    /// What an input of the graph reads that is one of the batch's arrays. Caches whose window has no blocks of its own have those of whole contexts.
    fn array(&self, input: Input) -> &[i32] {
        match input {
            Input::Tokens => &self.tokens,
            // Not an array of the batch.
            Input::NgramRows(_) => &[],
            Input::Hidden(_) => &self.hidden,
            Input::Positions => &self.positions,
            Input::Slots(window) => self.paged_of(window).map_or(&[], |paged| &paged.slots),
            Input::BlockTable(window) => self.paged_of(window).map_or(&[], |paged| &paged.block_table),
            Input::SeqLens => &self.seq_lens,
            Input::QueryStarts => &self.query_starts,
            Input::StateSlots => &self.state_slots,
            // A graph has at least one output.
            Input::OutputIds if self.output_ids.is_empty() => &[0],
            Input::OutputIds => &self.output_ids,
            Input::EncoderTokens => &self.encoder.tokens,
            Input::EncoderSlots => &self.encoder.slots,
            Input::EncoderTable => &self.encoder.table,
            Input::EncoderStarts => &self.encoder.starts,
            Input::EncoderLens => &self.encoder.lens,
        }
    }

    fn paged_of(&self, window: u32) -> Option<&PagedArrays> {
        self.paged.iter().find(|paged| paged.window == window as usize).or(self.paged.first())
    }

    fn push(
        &mut self,
        seq: &Sequence,
        chunk: &ScheduledChunk,
        block_size: usize,
        logits_from: Option<usize>,
    ) -> Result<()> {
        let (id, n_new, n_missing) = (seq.id, chunk.n_new, seq.n_missing() + seq.drafts().len());
        if n_new == 0 || n_new > n_missing {
            return Err(Error::BadShare { id, n_new, n_missing });
        }
        let end = seq.n_computed() + n_new;
        self.push_blocks(seq, end.max(seq.encoder_tokens().len()).div_ceil(block_size))?;

        for position in seq.n_computed()..end {
            let token = seq.token(position).ok_or(Error::BadShare { id, n_new, n_missing })?;
            let last = position + 1 >= seq.tokens().len();
            if last || logits_from.is_some_and(|from| position >= from) {
                self.output_ids.push(index(self.n_tokens()));
                self.rows.push(OutputRow { id, position });
            }
            for (paged, table) in self.paged.iter_mut().zip(seq.tables()) {
                let slot = table.slot(position, block_size);
                paged.slots.push(slot.ok_or(Error::NoSlot { id, position })?);
            }
            let before = |back: usize| seq.token(position.checked_sub(back)?);
            self.before.extend((1..MAX_NGRAM).map(|back| before(back).map_or(-1, |token| token as i32)));
            self.positions.push(index(position));
            self.tokens.push(token_id(id, token, position)?);
        }
        self.ids.push(id);
        self.seq_lens.push(index(end));
        self.query_starts.push(index(self.n_tokens()));
        Ok(())
    }

    fn push_blocks(&mut self, seq: &Sequence, needed: usize) -> Result<()> {
        let (id, max_blocks) = (seq.id, self.max_blocks);
        if needed > max_blocks {
            return Err(Error::TableTooNarrow { id, needed, max_blocks });
        }
        let mut tables = seq.tables();
        for paged in &mut self.paged {
            let found = tables.next().filter(|table| table.end() >= needed);
            let table = found.ok_or(Error::TooFewBlocks { id, needed, found: seq.blocks().end() })?;
            let row = (0..needed).map(|i| table.get(i).map_or(0, |block| index(block.0 as usize)));
            paged.block_table.extend(row.chain(std::iter::repeat_n(0, max_blocks - needed)));
        }
        Ok(())
    }
}

impl EncoderArrays {
    fn push(&mut self, seq: &Sequence, block_size: usize) -> Result<()> {
        let first = self.tokens.len();
        for (position, &token) in seq.encoder_tokens()[..seq.n_to_encode()].iter().enumerate() {
            let slot = seq.blocks().slot(position, block_size);
            self.slots.push(slot.ok_or(Error::NoSlot { id: seq.id, position })?);
            self.tokens.push(token_id(seq.id, token, position)?);
        }
        let row = (first..self.tokens.len()).map(index);
        self.table.extend(row.chain(std::iter::repeat_n(0, self.max_tokens - seq.n_to_encode())));
        self.starts.push(index(self.tokens.len()));
        self.lens.push(index(seq.encoder_tokens().len()));
        Ok(())
    }

    /// A sequence without a text.
    fn push_padding(&mut self) {
        self.table.extend(std::iter::repeat_n(0, self.max_tokens));
        self.starts.push(index(self.tokens.len()));
        self.lens.push(0);
    }
}

fn token_id(id: SequenceId, token: TokenId, position: usize) -> Result<i32> {
    i32::try_from(token).map_err(|_| Error::BadToken { id, token, position })
}

/// Positions, blocks and token counts are below the pool's number of slots, which fits an i32.
fn index(i: usize) -> i32 {
    i32::try_from(i).expect("a pool has at most 2^31 - 1 slots")
}

#[cfg(test)]
mod tests;
