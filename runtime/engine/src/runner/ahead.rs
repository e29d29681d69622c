//! Steps of layers that predict ahead, and the hidden states that they take.

use super::DeviceRunner;
use crate::batch::Batch;
use crate::core::Rows;
use crate::error::Result;
use crate::sequence::SequenceId;
use crate::speculation::N_CANDIDATES;
use llmrt_models::StepOutput;
use std::collections::hash_map::Entry;

impl DeviceRunner {
    /// Keeps hidden states of steps from now on, or forgets them.
    pub fn keep_hidden(&mut self, keep: bool) {
        self.keeps_hidden = keep;
        self.hidden.clear();
    }

    /// Keeps the hidden states of a step's rows.
    pub(super) fn record_hidden(&mut self, batch: &Batch) {
        let n = self.results.hidden.len() / batch.n_outputs().max(1);
        if n == 0 {
            return;
        }
        batch.rows.iter().for_each(|row| drop(self.hidden.remove(&row.id)));
        for (row, hidden) in batch.rows.iter().zip(self.results.hidden.chunks_exact(n)) {
            match self.hidden.entry(row.id) {
                Entry::Vacant(place) => drop(place.insert((row.position, hidden.to_vec()))),
                Entry::Occupied(mut rows) => rows.get_mut().1.extend_from_slice(hidden),
            }
        }
    }

    /// Forgets those of sequences that are gone.
    pub(crate) fn forget_hidden(&mut self, is_gone: impl Fn(SequenceId) -> bool) {
        self.hidden.retain(|id, _| !is_gone(*id));
    }

    /// The hidden state after the token at a position, if the last step of its sequence had it as a row.
    pub fn hidden(&self, id: SequenceId, position: usize) -> Option<&[f32]> {
        let n = self.model().config.n_embd as usize;
        let (first, rows) = self.hidden.get(&id)?;
        rows.chunks_exact(n).nth(position.checked_sub(*first)?)
    }

    /// Computes tokens of layers that predict ahead: their logits, and the hidden states that come next, one after the other.
    pub fn predict_ahead(&mut self, batch: &Batch) -> Result<(Rows<'_>, &[f32])> {
        self.forward(batch, StepOutput::Drafts, vec![Some(N_CANDIDATES); batch.n_outputs()])?;
        Ok((self.results()?, &self.results.hidden))
    }
}
