//! The arrays that a step reads. A graph has those that its model uses: each is made on first use.

use crate::batch::BatchShape;
use llmrt_abi::DType;

/// An array that the caller sets before each run; all but hidden states are I32. Those of paged caches exist once for each window of attention,
/// 0 without one, since blocks before a window may be freed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Input {
    /// `[n_tokens]`: token ids.
    Tokens,
    /// `[n_rows, n_tokens]`: rows of a table of n-grams, so many for each token: what its tokens hash to
    /// ([`NgramConfig::rows`](crate::config::NgramConfig::rows)).
    NgramRows(u32),
    /// `[n_tokens]`: position of each token in its sequence.
    Positions,
    /// `[n_tokens]`: where in the caches with this window each token goes; outside them: nowhere.
    Slots(u32),
    /// `[max_blocks, n_seqs]`: blocks of each sequence in the caches with this window, in order of position. Those before the
    /// window are not read.
    BlockTable(u32),
    /// `[n_seqs]`: tokens of each sequence, the new ones included; 0 for rows not in use.
    SeqLens,
    /// `[n_seqs + 1]`: each sequence's first token in the step; the last is the end.
    QueryStarts,
    /// `[n_seqs, 2]`: the slot of recurrent states that each sequence starts from, outside: zeros; then the slot that its
    /// new states go to, outside: nowhere.
    StateSlots,
    /// `[n_outputs]`: which tokens' logits are requested.
    OutputIds,
    /// `[n, n_tokens]`, F32: hidden states of so many elements, those after the token before each, for layers that predict
    /// ahead.
    Hidden(u64),
    /// `[n_encoder_tokens]`: token ids of the texts that the encoder reads in this step.
    EncoderTokens,
    /// `[n_encoder_tokens]`: where in the caches of cross attention each of them goes.
    EncoderSlots,
    /// `[max_encoder_tokens, n_seqs]`: which of them are each sequence's, in order.
    EncoderTable,
    /// `[n_seqs + 1]`: each sequence's first one; the last is the end.
    EncoderStarts,
    /// `[n_seqs]`: tokens of each sequence's text for the encoder, whenever that read it.
    EncoderLens,
}

impl Input {
    /// The element type.
    pub fn dtype(self) -> DType {
        if let Input::Hidden(_) = self { DType::F32 } else { DType::I32 }
    }

    /// Elements per dim in a step of this shape.
    pub fn dims(self, shape: &BatchShape) -> Vec<u64> {
        match self {
            Input::Tokens | Input::Positions | Input::Slots(_) => vec![shape.n_tokens],
            Input::NgramRows(n_rows) => vec![n_rows.into(), shape.n_tokens],
            Input::Hidden(n) => vec![n, shape.n_tokens],
            Input::BlockTable(_) => vec![shape.max_blocks, shape.n_seqs],
            Input::SeqLens => vec![shape.n_seqs],
            Input::QueryStarts => vec![shape.n_seqs + 1],
            Input::StateSlots => vec![shape.n_seqs, 2],
            Input::OutputIds => vec![shape.n_outputs],
            Input::EncoderTokens | Input::EncoderSlots => vec![shape.n_encoder_tokens],
            Input::EncoderTable => vec![shape.max_encoder_tokens, shape.n_seqs],
            Input::EncoderStarts => vec![shape.n_seqs + 1],
            Input::EncoderLens => vec![shape.n_seqs],
        }
    }

    /// The tensor's name. That of arrays without a window has no number.
    pub(crate) fn name(self) -> String {
        let of_window =
            |name: &str, window| if window == 0 { name.into() } else { format!("{name}.{window}") };
        match self {
            Input::Tokens => "tokens".into(),
            Input::NgramRows(_) => "ngram_rows".into(),
            Input::Hidden(_) => "hidden".into(),
            Input::Positions => "positions".into(),
            Input::Slots(window) => of_window("slots", window),
            Input::BlockTable(window) => of_window("block_table", window),
            Input::SeqLens => "seq_lens".into(),
            Input::QueryStarts => "query_starts".into(),
            Input::StateSlots => "state_slots".into(),
            Input::OutputIds => "output_ids".into(),
            Input::EncoderTokens => "encoder_tokens".into(),
            Input::EncoderSlots => "encoder_slots".into(),
            Input::EncoderTable => "encoder_table".into(),
            Input::EncoderStarts => "encoder_starts".into(),
            Input::EncoderLens => "encoder_lens".into(),
        }
    }
}
