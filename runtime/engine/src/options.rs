//! The sizes that an engine is made for.

use crate::batch::{Batch, Padding, table_width};
use crate::neurons::NeuronOptions;
use crate::program::MAX_SHOWN_TOKENS;
use crate::scheduler::{Policy, Preemption, SchedulerConfig};
use crate::tensor_rules::TensorRule;
use llmrt_abi::DType;
use llmrt_host::device::MAX_KV_BLOCK_SIZE;
use llmrt_host::sched::SplitMode;
use llmrt_models::{BatchShape, ModelSpec, SparseOptions, StepOutput, WindowBlocks};
use std::sync::Arc;

/// Tokens in a block of the KV cache where neither a device nor an option gives another number.
pub const BLOCK_SIZE: usize = 16;

/// Most tokens in a block.
pub const MAX_BLOCK_SIZE: usize = MAX_KV_BLOCK_SIZE as usize;

/// Slots of recurrent states that a sequence takes: one is read while the other is written.
const STATES_PER_SEQUENCE: usize = 2;

/// The sizes that the engine is made for.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Tokens that a sequence may reach.
    pub n_ctx: usize,
    /// Most tokens in one step.
    pub n_batch: usize,
    /// Sequences that may be at full length at the same time.
    pub max_seqs: usize,
    /// Tokens in a block of the KV cache, a power of two up to [`MAX_BLOCK_SIZE`]; `None` or 0: [`BLOCK_SIZE`].
    /// [`crate::memory::block_size`] is what devices prefer.
    pub block_size: Option<usize>,
    /// Blocks of the KV cache; `None`: as many as `max_seqs` sequences of `n_ctx` tokens take. [`crate::memory::kv_blocks`]
    /// computes how many fit into memory.
    pub kv_blocks: Option<usize>,
    /// Whether the caches of layers that see a window keep whole contexts. Otherwise blocks before the window are freed, and a
    /// text is found in the prefix cache only where the window at its end is there.
    pub swa_full: bool,
    /// Bytes of host memory for the blocks and states of preempted requests.
    pub swap_space: u64,
    /// Guesses of a text's next tokens that a step has room for ([`EngineCore::speculate`](crate::EngineCore::speculate)).
    pub max_drafts: usize,
    /// Rows of logits of prompt tokens in one step, where requests require these.
    pub max_prompt_logits: usize,
    /// Which requests a step serves first.
    pub policy: Policy,
    /// How preempted requests get their keys and values back.
    pub preemption: Preemption,
    /// Element type of the K cache.
    pub k_type: DType,
    /// Element type of the V cache.
    pub v_type: DType,
    /// Threads of the CPU pool to use; 0: all.
    pub n_threads: usize,
    /// Fail instead of letting nodes run elsewhere than on the first device.
    pub strict: bool,
    /// How several devices share the model.
    pub split: SplitMode,
    /// Weights that are for one device, whatever else has room; the first rule that matches a weight's name counts.
    pub tensors: Arc<[TensorRule]>,
    /// From so many bytes on, a step's logits stay on a device with memory of its own where the largest of each row
    /// decide ([`crate::Sampler::required_top_k`]), and only these are read back; `u64::MAX`: never.
    pub keep_logits_from: u64,
    /// Keep blocks of ended sequences, and use them for sequences that begin with the same tokens.
    pub prefix_cache: bool,
    /// What weights are loaded for, besides hidden states; `None`: what most requests to the model need
    /// ([`ModelSpec::output`]).
    pub output: Option<StepOutput>,
    /// Which neurons are computed, of models most of whose neurons give zeros. Without a threshold that of
    /// `LLAMA_SPARSE_PRED_THRESHOLD` counts, then that of the file.
    pub sparse: SparseOptions,
    /// Count what each token of a step of its own needs of such a model's weights ([`crate::work::NeededWork`]): some more nodes in
    /// those steps.
    pub count_needed: bool,
    /// How neurons of such models are divided between the first device and the CPU, where it has too little memory for all.
    pub neurons: NeuronOptions,
}

/// One sequence of 4096 tokens, prompts in chunks of 512, a KV cache of F16, all threads; nodes may run on any device,
/// all logits are read back, and blocks are used again.
impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            n_ctx: 4096,
            n_batch: 512,
            max_seqs: 1,
            block_size: None,
            kv_blocks: None,
            swa_full: false,
            swap_space: 0,
            max_drafts: 0,
            max_prompt_logits: 64,
            policy: Policy::default(),
            preemption: Preemption::default(),
            k_type: DType::F16,
            v_type: DType::F16,
            n_threads: 0,
            strict: false,
            split: SplitMode::default(),
            tensors: Arc::default(),
            keep_logits_from: u64::MAX,
            prefix_cache: true,
            output: None,
            sparse: SparseOptions::default(),
            count_needed: false,
            neurons: NeuronOptions::default(),
        }
    }
}

impl EngineOptions {
    /// Tokens in a block.
    pub fn block_size(&self) -> usize {
        self.block_size.filter(|&n| n > 0).unwrap_or(BLOCK_SIZE)
    }

    /// Blocks one sequence may have.
    pub fn max_blocks(&self) -> usize {
        self.n_ctx.div_ceil(self.block_size()).max(1)
    }

    /// Blocks of the pool.
    pub fn n_blocks(&self) -> usize {
        self.kv_blocks.unwrap_or_else(|| self.n_blocks_of_all())
    }

    /// Blocks that all sequences take at full length.
    pub(crate) fn n_blocks_of_all(&self) -> usize {
        self.max_blocks().saturating_mul(self.max_seqs.max(1))
    }

    /// The watermark of a pool of so many blocks: 0 where every sequence has room for the whole context.
    pub(crate) fn watermark(&self, n_blocks: usize) -> f64 {
        if n_blocks >= self.n_blocks_of_all() { 0.0 } else { SchedulerConfig::default().watermark }
    }

    /// Blocks of the KV cache on devices: those of the pool, and those of padding.
    pub fn n_device_blocks(&self) -> usize {
        self.n_blocks().saturating_add(self.padding().n_blocks())
    }

    /// The windows of a model's layers whose caches have blocks of their own, each with how many the pool has.
    pub(crate) fn windows(&self, spec: &ModelSpec) -> Vec<(u32, usize)> {
        let windows = if self.swa_full { Vec::new() } else { spec.windows() };
        let n_blocks = |w| self.shape(1, 1, 1).n_blocks_of(w) as usize - self.padding().n_blocks();
        windows.into_iter().map(|window| (window, n_blocks(window))).collect()
    }

    /// Tokens of a step.
    pub(crate) fn max_num_batched_tokens(&self) -> usize {
        self.n_batch.max(self.max_seqs.max(1))
    }

    /// What steps are padded with.
    pub(crate) fn padding(&self) -> Padding {
        Padding {
            max_seqs: self.max_seqs.max(1),
            first_state: self.n_states(),
            block_size: self.block_size(),
        }
    }

    /// The shape of the largest step: all sequences, with logits of each.
    pub(crate) fn largest_shape(&self, spec: &ModelSpec) -> BatchShape {
        let n_seqs = self.max_seqs.max(1);
        let n_tokens = self.max_num_batched_tokens() + self.padding().max_added();
        let n_outputs = n_seqs.saturating_mul(1 + self.max_drafts).min(n_tokens);
        let shape = self.shape(n_tokens, n_seqs, n_outputs);
        let n_encoder_tokens = self.max_num_batched_tokens() as u64;
        BatchShape {
            output: self.output(spec),
            n_encoder_tokens,
            max_encoder_tokens: n_encoder_tokens.next_power_of_two(),
            ..shape
        }
    }

    /// The shape of the largest step of which it is read which neurons fire.
    pub(crate) fn counted_shape(&self, spec: &ModelSpec) -> BatchShape {
        let n_tokens = self.max_num_batched_tokens() + self.padding().max_added();
        let n_tokens = n_tokens.min(MAX_SHOWN_TOKENS as usize);
        let n_seqs = self.max_seqs.clamp(1, n_tokens);
        let n_outputs = n_seqs.saturating_mul(1 + self.max_drafts).min(n_tokens);
        BatchShape { output: self.output(spec), ..self.shape(n_tokens, n_seqs, n_outputs) }
    }

    /// What weights are loaded for.
    pub(crate) fn output(&self, spec: &ModelSpec) -> StepOutput {
        self.output.unwrap_or(spec.output())
    }

    /// Slots of recurrent states, in models that have them.
    pub(crate) fn n_states(&self) -> usize {
        self.max_seqs.max(1).saturating_mul(STATES_PER_SEQUENCE)
    }

    /// The same on devices, with those of padding.
    pub(crate) fn n_device_states(&self) -> usize {
        self.n_states().saturating_add(self.padding().max_added())
    }

    /// How many blocks the caches of layers with a window have.
    fn window_blocks(&self) -> WindowBlocks {
        match self.swa_full {
            true => WindowBlocks::All,
            false => WindowBlocks::PerSequence {
                n_seqs: self.max_seqs.max(1) as u64,
                n_new: self.max_num_batched_tokens() as u64,
                n_padding: self.padding().n_blocks() as u64,
            },
        }
    }

    /// The shape of a batch.
    pub(crate) fn shape_of(&self, batch: &Batch, output: StepOutput) -> BatchShape {
        let shape = self.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        BatchShape {
            max_blocks: batch.max_blocks as u64,
            n_encoder_tokens: batch.encoder.tokens.len() as u64,
            max_encoder_tokens: batch.encoder.max_tokens as u64,
            output,
            ..shape
        }
    }

    /// The shape of the first decode step of so many sequences.
    pub(crate) fn decode_shape(&self, spec: &ModelSpec, n_seqs: usize) -> BatchShape {
        let max_blocks = table_width(1, self.block_size(), self.max_blocks()) as u64;
        BatchShape { max_blocks, output: self.output(spec), ..self.shape(n_seqs, n_seqs, n_seqs) }
    }

    /// The shape of a step of layers that predict ahead, of so many sequences with the longest block tables.
    pub(crate) fn ahead_shape(&self, n_seqs: usize) -> BatchShape {
        BatchShape { output: StepOutput::Drafts, ..self.shape(n_seqs, n_seqs, n_seqs) }
    }

    /// The shape of a step whose block tables have all columns.
    pub(crate) fn shape(&self, n_tokens: usize, n_seqs: usize, n_outputs: usize) -> BatchShape {
        BatchShape {
            n_tokens: n_tokens as u64,
            n_encoder_tokens: 0,
            max_encoder_tokens: 0,
            n_seqs: n_seqs as u64,
            n_outputs: n_outputs.max(1) as u64,
            output: StepOutput::Logits,
            max_blocks: self.max_blocks() as u64,
            n_blocks: self.n_device_blocks() as u64,
            windows: self.window_blocks(),
            block_size: self.block_size() as u64,
            n_state_slots: self.n_device_states() as u64,
            k_type: self.k_type,
            v_type: self.v_type,
        }
    }
}
