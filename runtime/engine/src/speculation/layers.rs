//! Guesses of layers that a model has for it (multi-token prediction): they read its caches and its hidden states.

use super::model::likeliest;
use super::{DraftInput, Drafter};
use crate::batch::{Ahead, Batch};
use crate::error::Result;
use crate::runner::DeviceRunner;
use crate::sequence::TokenId;

/// The model's own layers that predict ahead. Each guess gives the hidden state for the next one.
pub struct DraftLayers {
    /// Probability below which a token is no guess.
    pub min_probability: f32,
}

/// A text that is guessed on.
struct Text {
    index: usize,
    token: TokenId,
    hidden: Vec<f32>,
}

impl Drafter<DeviceRunner> for DraftLayers {
    fn draft(&mut self, texts: &[DraftInput<'_>], target: &mut DeviceRunner) -> Result<Vec<Vec<TokenId>>> {
        target.forget_hidden(|id| texts.iter().all(|text| text.sequence.id != id));
        let begin = |(index, text): (usize, &DraftInput<'_>)| {
            let tokens = text.sequence.tokens();
            // A text whose last step was not its own, as after a fork, is guessed on after the next.
            let is_next = text.sequence.n_missing() == 1;
            let hidden = target.hidden(text.sequence.id, tokens.len().checked_sub(2)?)?.to_vec();
            is_next.then_some(Text { index, token: *tokens.last()?, hidden })
        };
        let mut open: Vec<Text> = texts.iter().enumerate().filter_map(begin).collect();
        let mut drafts = vec![Vec::new(); texts.len()];
        let max_blocks = target.options.max_blocks();
        while let Some(first) = open.first() {
            let caches = texts[first.index].caches;
            let rows = open.iter().map(|text| Ahead {
                sequence: texts[text.index].sequence,
                token: text.token,
                hidden: &text.hidden,
            });
            let rows: Vec<Ahead<'_>> = rows.collect();
            let batch = Batch::ahead(&rows, caches, max_blocks)?;
            let (logits, hidden) = target.predict_ahead(&batch)?;
            let n = hidden.len() / open.len();
            let mut next = Vec::new();
            for (i, mut text) in open.into_iter().enumerate() {
                let (token, probability) = likeliest(logits.row(i))?;
                let draft: &mut Vec<TokenId> = &mut drafts[text.index];
                if probability < self.min_probability {
                    continue;
                }
                draft.push(token);
                if draft.len() < texts[text.index].max_drafts {
                    text.token = token;
                    text.hidden.copy_from_slice(&hidden[i * n..][..n]);
                    next.push(text);
                }
            }
            open = next;
        }
        Ok(drafts)
    }
}
