//! What an engine on a thread of its own counts.

use crate::core::EngineEvent;
use crate::speculation::DraftUse;
use crate::stop::Finish;

/// Queues, KV cache and counters of an engine, after the last step. Requests that end early are counted
/// too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Requests that wait for blocks.
    pub n_waiting: usize,
    /// Requests that have blocks on the device.
    pub n_running: usize,
    /// Requests whose blocks are in host memory.
    pub n_swapped: usize,
    /// Tokens in a block of the KV cache.
    pub block_size: usize,
    /// Blocks of the KV cache.
    pub n_blocks: usize,
    /// Of these, those of requests; the prefix cache's are not among them.
    pub n_blocks_used: usize,
    /// How often a request lost its blocks to others.
    pub n_preemptions: u64,
    /// Tokens of the prompts of requests that ended.
    pub n_prompt_tokens: u64,
    /// Of these, those that the prefix cache had.
    pub n_cached_tokens: u64,
    /// Tokens generated so far; of texts that are compared when they are complete, once they are.
    pub n_generated_tokens: u64,
    /// What guesses of next tokens came to.
    pub drafts: DraftUse,
    /// Requests that ended at a stop string, a stop token or the end of text.
    pub n_stopped: u64,
    /// Requests that ended at a limit of length.
    pub n_at_length: u64,
    /// Requests that were aborted.
    pub n_aborted: u64,
    /// Requests that were refused or ended with an error.
    pub n_failed: u64,
}

impl EngineStats {
    /// Counts an event of a request, of which `n_streamed` tokens were counted before.
    pub(crate) fn add(&mut self, event: &EngineEvent, n_streamed: &mut u64) {
        match event {
            EngineEvent::Token { .. } => {
                *n_streamed += 1;
                self.n_generated_tokens += 1;
            }
            EngineEvent::Failed { .. } => self.n_failed += 1,
            EngineEvent::Finished(output) => {
                let usage = &output.usage;
                self.n_prompt_tokens += usage.n_prompt as u64;
                self.n_cached_tokens += usage.n_cached as u64;
                self.n_generated_tokens += (usage.n_generated as u64).saturating_sub(*n_streamed);
                match output.outputs.first().map(|output| &output.finish) {
                    Some(Finish::Length) => self.n_at_length += 1,
                    Some(Finish::Stop(_) | Finish::StopToken(_) | Finish::Eos) => self.n_stopped += 1,
                    Some(Finish::Cancelled) | None => self.n_aborted += 1,
                }
            }
            _ => {}
        }
    }
}
