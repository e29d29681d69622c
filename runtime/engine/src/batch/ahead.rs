//! The arrays of layers that predict ahead: a token of each sequence, and the hidden state before it.

use super::{Batch, OutputRow, index, table_width, token_id};
use crate::error::{Error, Result};
use crate::kv::pools::CachePools;
use crate::sequence::{Sequence, TokenId};
use llmrt_models::config::MAX_NGRAM;

/// A token whose next one is predicted.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    /// Its sequence, of which attention sees the computed tokens.
    pub sequence: &'a Sequence,
    /// The token.
    pub token: TokenId,
    /// The hidden state before it.
    pub hidden: &'a [f32],
}

impl Batch {
    /// The arrays for these tokens, each the next of its sequence after those that are computed. Block tables have at most
    /// `max_blocks` columns.
    pub fn ahead(texts: &[Ahead<'_>], pools: &CachePools, max_blocks: usize) -> Result<Batch> {
        if let Some(text) = texts.iter().find(|text| text.sequence.n_computed() == 0) {
            return Err(Error::NoTokens { id: text.sequence.id });
        }
        let n_blocks = |text: &Ahead<'_>| pools.blocks.blocks_for(text.sequence.n_computed());
        let longest = texts.iter().map(n_blocks).max().unwrap_or(0);
        let max_blocks = table_width(longest, pools.blocks.block_size(), max_blocks);
        let mut batch = Batch::empty(pools, max_blocks);
        for (i, text) in texts.iter().enumerate() {
            let (id, position) = (text.sequence.id, text.sequence.n_computed());
            batch.tokens.push(token_id(id, text.token, position)?);
            batch.before.extend([-1; MAX_NGRAM - 1]);
            batch.positions.push(index(position));
            batch.hidden.extend(text.hidden.iter().map(|x| x.to_bits() as i32));
            batch.push_blocks(text.sequence, n_blocks(text))?;
            // Nothing is written: any slot will do.
            batch.paged.iter_mut().for_each(|paged| paged.slots.push(0));
            batch.ids.push(id);
            batch.seq_lens.push(index(position));
            batch.query_starts.push(index(i + 1));
            batch.output_ids.push(index(i));
            batch.rows.push(OutputRow { id, position });
        }
        batch.state_slots = vec![-1; 2 * texts.len()];
        Ok(batch)
    }
}
