//! What a step does, in the order in which it is executed: swap-outs, swap-ins, block copies, then the chunks.

use crate::kv::pool::BlockId;
use crate::kv::pools::CacheMoves;
use crate::request::RequestId;
use crate::sequence::SequenceId;

/// The next step.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StepPlan {
    /// Blocks and states of swapped-out groups: from the device, to host memory.
    pub swap_out: CacheMoves,
    /// Blocks and states of swapped-in groups: from host memory, to the device. Never in one step with `swap_out`.
    pub swap_in: CacheMoves,
    /// Blocks that are copied on the device since another sequence still reads the first (copy on write), those of a cache
    /// one after the other.
    pub block_copies: CacheMoves,
    /// The tokens that are computed.
    pub chunks: Vec<ScheduledChunk>,
    /// Requests whose blocks went to others; they go on later.
    pub preempted: Vec<(RequestId, PreemptionMode)>,
    /// Requests that ended since they can never run.
    pub refused: Vec<Refusal>,
    /// Tokens that an encoder reads.
    pub n_to_encode: usize,
    /// Rows of logits of prompt tokens.
    pub n_prompt_logits: usize,
}

/// The contents of a block that go into another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockMove {
    /// The block that is read.
    pub from: BlockId,
    /// The block that is written.
    pub to: BlockId,
}

/// The next `n_new` missing tokens of a sequence, then guesses of those after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScheduledChunk {
    /// Whose tokens.
    pub id: SequenceId,
    /// How many, at least 1.
    pub n_new: usize,
}

/// How a preempted group gets its keys and values back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreemptionMode {
    /// Its tokens are computed again.
    Recompute,
    /// Its blocks are kept in host memory.
    Swap,
}

/// Why a request never runs (again): it requires more than there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The request.
    pub request: RequestId,
    /// Of what there is too little.
    pub limit: Limit,
    /// How much the request requires.
    pub needed: usize,
    /// How much there is.
    pub available: usize,
}

/// What a request can be too large for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Blocks of the KV cache, without the watermark.
    Blocks,
    /// Sequences of a step.
    Sequences,
    /// Tokens of a step, where a prompt is computed whole.
    BatchedTokens,
    /// Tokens that an encoder reads in a step.
    EncoderTokens,
}

impl StepPlan {
    /// Tokens of all sequences together.
    pub fn n_tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.n_new).sum()
    }

    /// Whether the step computes nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Tokens that `max` leaves.
    pub(super) fn n_left(&self, max: usize) -> usize {
        max.saturating_sub(self.n_tokens())
    }
}
