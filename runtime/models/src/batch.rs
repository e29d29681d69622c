//! The shape of a step, and the graph that computes one step of that shape.

use crate::error::{Error, Result};
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_graph::{Graph, Tensor};

/// How many tokens, sequences and blocks one step has. Graphs are cached by it, so few values should occur.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BatchShape {
    /// Tokens computed in the step, of all sequences.
    pub n_tokens: u64,
    /// Tokens that the encoder reads in the step; only of models with an encoder and a decoder.
    pub n_encoder_tokens: u64,
    /// The most of them that one sequence has.
    pub max_encoder_tokens: u64,
    /// Rows of the block table.
    pub n_seqs: u64,
    /// Tokens whose logits are requested, at least 1; a step that needs none gives any row and ignores the result.
    pub n_outputs: u64,
    /// What is computed of these tokens.
    pub output: StepOutput,
    /// Blocks one sequence may have.
    pub max_blocks: u64,
    /// Blocks of the caches of layers that see whole contexts.
    pub n_blocks: u64,
    /// Blocks of the caches of layers that see a window.
    pub windows: WindowBlocks,
    /// Tokens in a block.
    pub block_size: u64,
    /// Slots of recurrent states.
    pub n_state_slots: u64,
    /// Element type of the K cache.
    pub k_type: DType,
    /// Element type of the V cache.
    pub v_type: DType,
}

/// What a step gives of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum StepOutput {
    /// Logits; hidden states of models without a vocabulary's head.
    #[default]
    Logits,
    /// Hidden states after the last norm: what logits are made of.
    Embeddings,
    /// What the classifier gives of hidden states.
    Scores,
    /// Logits of the tokens after the next ones, by layers that predict ahead: of each sequence's last token, whose keys are not
    /// computed yet, and the hidden state before it.
    Drafts,
}

/// How many blocks the caches of layers that see a window have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowBlocks {
    /// As many as other caches: a block has the same number in all of them.
    All,
    /// What sequences hold that free the blocks before their windows; at most as many as other caches.
    PerSequence {
        /// How many sequences.
        n_seqs: u64,
        /// Tokens of a sequence that a step adds at most.
        n_new: u64,
        /// Blocks besides those.
        n_padding: u64,
    },
}

impl BatchShape {
    /// Blocks of the caches of layers that see so many tokens, the query included; 0: all.
    pub fn n_blocks_of(&self, window: u32) -> u64 {
        match self.windows {
            WindowBlocks::PerSequence { n_seqs, n_new, n_padding } if window > 0 => {
                // The window ends, and the new tokens begin, anywhere in a block.
                let of_one = (u64::from(window) + n_new).div_ceil(self.block_size) + 1;
                n_seqs.saturating_mul(of_one).saturating_add(n_padding).min(self.n_blocks)
            }
            _ => self.n_blocks,
        }
    }

    /// One token of one sequence.
    pub(crate) const SMALLEST: BatchShape = BatchShape {
        n_tokens: 1,
        n_encoder_tokens: 1,
        max_encoder_tokens: 1,
        n_seqs: 1,
        n_outputs: 1,
        output: StepOutput::Logits,
        max_blocks: 1,
        n_blocks: 1,
        windows: WindowBlocks::All,
        block_size: 1,
        n_state_slots: 1,
        k_type: DType::F32,
        v_type: DType::F32,
    };

    /// Every count is at least 1, and ids fit i32.
    pub(crate) fn check(&self) -> Result<()> {
        let counts = [
            ("n_tokens", self.n_tokens, MAX),
            ("n_seqs", self.n_seqs, MAX),
            ("n_outputs", self.n_outputs, self.n_tokens),
            ("max_blocks", self.max_blocks, MAX),
            ("n_blocks", self.n_blocks, MAX),
            ("n_state_slots", self.n_state_slots, MAX),
            ("block_size", self.block_size, MAX / self.n_blocks.clamp(1, MAX)),
        ];
        // A step may have no text for an encoder.
        let of_encoder = [
            ("n_encoder_tokens", self.n_encoder_tokens, MAX),
            ("max_encoder_tokens", self.max_encoder_tokens, MAX),
        ];
        let counts = counts.into_iter().map(|(what, n, most)| (what, n, 1, most));
        let counts = counts.chain(of_encoder.into_iter().map(|(what, n, most)| (what, n, 0, most)));
        match { counts }.find(|&(_, n, least, most)| n < least || n > most) {
            Some((what, found, least, most)) => {
                Err(Error::BadBatch { what, found, expected: format!("{least} to {most}") })
            }
            None => Ok(()),
        }
    }
}

/// The most that an i32 id reaches.
const MAX: u64 = i32::MAX as u64;

/// The graph of one step, and where its inputs and results are.
#[derive(Clone, Debug)]
pub struct ModelGraph {
    /// The graph. Caches are its states, such as `blk.N.k_cache`.
    pub graph: Graph,
    /// What the caller sets before each run, in order of first use.
    pub inputs: Vec<(Input, Tensor)>,
    /// F32 `[n_vocab, n_outputs]`, or what [`BatchShape::output`] requests in their place.
    pub logits: Tensor,
    /// F32 `[n_embd, n_outputs]`: the hidden states that layers which predict ahead take next, of models that have some.
    pub hidden: Option<Tensor>,
}
