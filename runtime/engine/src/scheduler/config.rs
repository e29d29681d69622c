//! The scheduler's budgets and rules.

/// What a step may do, and which rules decide.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SchedulerConfig {
    /// Tokens in one step, at least as many as sequences.
    pub max_num_batched_tokens: usize,
    /// Sequences in one step.
    pub max_num_seqs: usize,
    /// Rows of logits of prompt tokens in one step, where requests require them; the last token's is not counted.
    pub max_num_prompt_logits: usize,
    /// Blocks that stay free when a request is admitted, as a share of all: room for the next tokens of those that run.
    pub watermark: f64,
    /// Who goes first.
    pub policy: Policy,
    /// How preempted requests get their keys and values back.
    pub preemption: Preemption,
    /// Times that decide between recomputing and swapping, where both were measured.
    pub cost: Option<PreemptionCost>,
    /// Whether blocks are kept and found by their contents.
    pub prefix_cache: bool,
    /// Whether tokens see those before them alone. If not, a step computes whole texts, all rows of their logits, and no block
    /// is of use to another text.
    pub is_causal: bool,
}

impl SchedulerConfig {
    /// With the rules that follow from others.
    pub(super) fn settled(self) -> SchedulerConfig {
        if self.is_causal {
            return self;
        }
        let max_num_prompt_logits = self.max_num_batched_tokens;
        SchedulerConfig { policy: Policy::PrefillFirst, prefix_cache: false, max_num_prompt_logits, ..self }
    }

    /// Blocks of `n_blocks` that stay free when a request is admitted.
    pub(crate) fn watermark_blocks(&self, n_blocks: usize) -> usize {
        (self.watermark * n_blocks as f64) as usize
    }
}

/// The rule of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// One budget of tokens: decodes first, then chunks of prompts. A decode never waits for a prompt.
    #[default]
    Chunked,
    /// A step computes whole prompts, or decodes (vLLM before chunked prefill).
    PrefillFirst,
}

/// How preempted requests get their keys and values back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preemption {
    /// What takes less time by [`PreemptionCost`]; without it groups of several sequences are swapped, others recomputed.
    #[default]
    Auto,
    /// Always computed again.
    Recompute,
    /// Swapped while host memory has room.
    Swap,
}

/// Measured times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreemptionCost {
    /// Nanoseconds that a block takes from the device to host memory, or back.
    pub ns_per_block: u64,
    /// Nanoseconds of prefill that a token takes.
    pub ns_per_token: u64,
}

/// 2048 tokens and 256 sequences a step, a watermark of 1 % (vLLM's defaults), chunked prefill, a prefix cache.
impl Default for SchedulerConfig {
    fn default() -> SchedulerConfig {
        SchedulerConfig {
            max_num_batched_tokens: 2048,
            max_num_seqs: 256,
            max_num_prompt_logits: 64,
            watermark: 0.01,
            policy: Policy::default(),
            preemption: Preemption::default(),
            cost: None,
            prefix_cache: true,
            is_causal: true,
        }
    }
}
