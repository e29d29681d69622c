//! Guesses of a smaller model with the same vocabulary.

use super::{DraftInput, Drafter, N_CANDIDATES};
use crate::batch::Batch;
use crate::core::{EngineCore, Runner, StepInputs};
use crate::error::{Error, Result};
use crate::options::EngineOptions;
use crate::request::{Request, RequestId};
use crate::runner::DeviceRunner;
use crate::sampler::{Candidate, Row, largest};
use crate::scheduler::{Child, NewGroup, Outcome};
use crate::sequence::{SequenceId, TokenId};
use llmrt_models::StepOutput;
use std::collections::HashMap;

/// A model that guesses. It keeps a sequence for each text, and computes those tokens that it has not guessed itself.
pub struct DraftModel {
    core: EngineCore<DeviceRunner>,
    /// The group of each text.
    texts: HashMap<SequenceId, RequestId>,
    next_id: u64,
    /// Probability below which a token is no guess.
    min_probability: f32,
}

/// A text of this call.
struct Draft {
    request: RequestId,
    max_drafts: usize,
    tokens: Vec<TokenId>,
}

impl DraftModel {
    /// A model on its devices, whose tokens have the ids of the texts' model. A guess that is less likely than
    /// `min_probability` is not made, nor any after it.
    pub fn new(runner: DeviceRunner, min_probability: f32) -> Result<DraftModel> {
        let core = runner.into_core(None)?;
        core.check_generates()?;
        if core.has_encoder() {
            return Err(Error::NoDrafts);
        }
        Ok(DraftModel { core, texts: HashMap::new(), next_id: 0, min_probability })
    }

    /// The sizes of a model that guesses for texts of at most `n_ctx` tokens, whose engine has these options: its caches hold as
    /// many tokens as theirs do.
    pub fn options(options: &EngineOptions, n_ctx: usize) -> EngineOptions {
        EngineOptions {
            n_ctx,
            n_batch: options.n_batch,
            max_seqs: options.max_seqs,
            block_size: options.block_size,
            kv_blocks: Some(options.n_blocks()),
            k_type: options.k_type,
            v_type: options.v_type,
            n_threads: options.n_threads,
            strict: options.strict,
            split: options.split,
            keep_logits_from: options.keep_logits_from,
            ..EngineOptions::default()
        }
    }

    /// Gives a text's tokens to its group; `None` if it has no room for them.
    fn begin(&mut self, text: &DraftInput<'_>) -> Result<Option<Draft>> {
        let (sequence, tokens) = (text.sequence.id, text.sequence.tokens());
        let n_vocab = self.core.runner().n_vocab() as u64;
        let max_drafts = text.max_drafts.min(self.core.n_ctx().saturating_sub(tokens.len()));
        if max_drafts == 0 || tokens.iter().any(|&token| u64::from(token) >= n_vocab) {
            return Ok(None);
        }
        let (scheduler, _) = self.core.parts();
        let request = match self.texts.get(&sequence) {
            Some(&id) => {
                scheduler.replace(id, tokens)?;
                id
            }
            None => {
                let request = Request::greedy(tokens.to_vec());
                let id = RequestId(self.next_id);
                self.next_id += 1;
                // Requests with different salts share no cached prefixes here either.
                let root = text.sequence.root();
                scheduler.add(&NewGroup { root, ..NewGroup::new(id, &request) })?;
                self.texts.insert(sequence, id);
                id
            }
        };
        Ok(Some(Draft { request, max_drafts, tokens: Vec::new() }))
    }

    /// Ends the groups of texts that are not among these.
    fn forget_others(&mut self, texts: &[DraftInput<'_>]) -> Result<()> {
        let is_gone = |id: &SequenceId| !texts.iter().any(|text| text.sequence.id == *id);
        let gone: Vec<SequenceId> = self.texts.keys().copied().filter(is_gone).collect();
        gone.iter().filter_map(|id| self.texts.remove(id)).try_for_each(|id| self.core.parts().0.abort(id))
    }

    /// Whether no text lacks more than its next token.
    fn is_level(&self) -> bool {
        self.core.scheduler().running().all(|(_, sequence)| sequence.n_missing() <= 1)
    }

    /// One step, and a guess of each text whose tokens it completes. `false`: there was nothing to compute.
    fn step(&mut self, drafts: &mut [Option<Draft>]) -> Result<bool> {
        let n_ctx = self.core.n_ctx();
        let (scheduler, runner) = self.core.parts();
        let plan = scheduler.schedule()?;
        for refusal in &plan.refused {
            self.texts.retain(|_, id| *id != refusal.request);
        }
        if plan.is_empty() {
            scheduler.fail()?;
            return Ok(false);
        }
        let computed = (|| {
            runner.prepare()?;
            runner.move_blocks(&plan)?;
            let pools = scheduler.device();
            let max_blocks = pools.blocks.blocks_for(n_ctx).max(1);
            let find = |id| scheduler.sequence(id).map(|seq| (seq, None));
            let batch = Batch::new(&plan.chunks, find, pools, max_blocks)?;
            let needs = vec![Some(N_CANDIDATES); batch.rows.len()];
            Runner::forward(runner, &StepInputs { batch: &batch, output: StepOutput::Logits, needs })?;
            Ok(batch)
        })();
        let batch = match computed {
            Ok(batch) => batch,
            Err(e) => {
                scheduler.fail()?;
                return Err(e);
            }
        };
        let rows = runner.rows()?;
        let owners: HashMap<SequenceId, RequestId> =
            scheduler.running().map(|(request, seq)| (seq.id, request)).collect();
        let mut outcomes = Vec::new();
        for (i, row) in batch.rows.iter().enumerate() {
            let owner = owners.get(&row.id).ok_or(Error::UnknownSequence { id: row.id })?;
            let Some(draft) = drafts.iter_mut().flatten().find(|draft| draft.request == *owner) else {
                continue;
            };
            let (token, probability) = likeliest(rows.row(i))?;
            if probability < self.min_probability {
                continue;
            }
            draft.tokens.push(token);
            if draft.tokens.len() < draft.max_drafts {
                outcomes.push(Outcome { request: *owner, next: vec![Child::new(row.id, token)] });
            }
        }
        scheduler.complete(&outcomes)?;
        Ok(true)
    }
}

impl<R> Drafter<R> for DraftModel {
    fn draft(&mut self, texts: &[DraftInput<'_>], _target: &mut R) -> Result<Vec<Vec<TokenId>>> {
        self.forget_others(texts)?;
        let mut drafts = texts.iter().map(|text| self.begin(text)).collect::<Result<Vec<_>>>()?;
        // The first step may compute a part of a prompt, so that other texts wait for no more than that. Guesses come once it
        // is complete.
        while self.step(&mut drafts)? && self.is_level() {}
        Ok(drafts.into_iter().map(|draft| draft.map_or(Vec::new(), |draft| draft.tokens)).collect())
    }
}

/// The token with the largest logit, and its probability among the [`N_CANDIDATES`] likeliest.
pub(super) fn likeliest(row: Row<'_>) -> Result<(TokenId, f32)> {
    let mut top = Vec::new();
    let candidates: &[Candidate] = match row {
        Row::Largest(largest) => largest,
        Row::All(logits) => {
            largest(logits, N_CANDIDATES, &mut top)?;
            &top
        }
    };
    let first = candidates.first().ok_or(Error::NoLogits)?;
    let likeliest = candidates.iter().take(N_CANDIDATES);
    let sum: f32 = likeliest.map(|candidate| (candidate.logit - first.logit).exp()).sum();
    Ok((first.id, sum.recip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_token_has_its_share_of_the_ten_likeliest_wherever_they_were_picked() {
        let logits: Vec<f32> = (0..40).map(|i| (i * 7 % 40) as f32 / 8.0).collect();
        let mut largest: Vec<Candidate> =
            logits.iter().zip(0..).map(|(&logit, id)| Candidate { id, logit }).collect();
        largest.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
        let sum: f32 = (0..10).map(|i| (-i as f32 / 8.0).exp()).sum();
        for row in [Row::All(&logits), Row::Largest(&largest[..10]), Row::Largest(&largest[..20])] {
            let (token, probability) = likeliest(row).unwrap();
            assert_eq!(logits[token as usize], 39.0 / 8.0);
            assert!((probability - sum.recip()).abs() < 1e-6, "{probability}");
        }
        assert_eq!(likeliest(Row::All(&[1.0, 1.0])).unwrap(), (0, 0.5), "of equals the first");
        assert!(likeliest(Row::All(&[0.0, f32::NAN])).is_err());
        assert_eq!(likeliest(Row::All(&[])).unwrap_err(), Error::NoLogits);
    }
}
