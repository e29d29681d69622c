//! The beams of a request.

use super::{Vocabulary, without};
use crate::batch::OutputRow;
use crate::beam::{Beam, BeamSearch};
use crate::error::Result;
use crate::logprobs::LogSoftmax;
use crate::output::{CompletionOutput, Output};
use crate::request::Request;
use crate::sampler::Row;
use crate::scheduler::Child;
use crate::sequence::{SequenceId, TokenId};
use crate::stop::Finish;

/// A search and the sequences of its beams.
pub struct Beams {
    search: BeamSearch,
    beams: Vec<Beam<SequenceId>>,
}

impl Beams {
    pub fn new(search: BeamSearch) -> Beams {
        Beams { search, beams: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.beams.is_empty()
    }

    /// Tokens of its beams.
    pub fn n_tokens(&self) -> usize {
        self.beams.iter().map(|beam| beam.tokens.len()).sum()
    }

    /// The best continuations of all beams, whose logits are given, without the tokens that no text is continued with.
    pub fn pick(
        &mut self,
        given: &[(OutputRow, Row<'_>)],
        suppressed: &[TokenId],
        stops: impl Fn(TokenId) -> bool,
    ) -> Result<Vec<Child>> {
        if self.beams.is_empty() {
            let root = Beam { sequence: given[0].0.id, tokens: Vec::new(), cumulative_logprob: 0.0 };
            self.beams.push(root);
        }
        let mut tops = Vec::new();
        for beam in &self.beams {
            let row = given.iter().find(|(row, _)| row.id == beam.sequence).map(|(_, logits)| logits);
            tops.push(match row {
                Some(Row::All(logits)) => {
                    LogSoftmax::new(&without(logits, suppressed))?.top(self.search.n_candidates())
                }
                _ => Vec::new(),
            });
        }
        self.beams = self.search.next(&self.beams, &tops, stops);
        let child =
            |beam: &Beam<SequenceId>| beam.tokens.last().map(|&token| Child::new(beam.sequence, token));
        Ok(self.beams.iter().filter_map(child).collect())
    }

    pub fn rename(&mut self, ids: &[SequenceId]) {
        self.beams.iter_mut().zip(ids).for_each(|(beam, id)| beam.sequence = *id);
    }

    /// The texts that were found, best first.
    pub fn complete(&mut self, request: &Request, vocabulary: &Vocabulary) -> Result<Vec<CompletionOutput>> {
        let mut outputs = Vec::new();
        for (i, hypothesis) in self.search.finished.iter().enumerate() {
            let mut output = Output::new(request, i, vocabulary.tokenizer.as_ref())?;
            for token in &hypothesis.tokens {
                output.push(*token)?;
            }
            let finish = if hypothesis.is_stopped { Finish::Eos } else { Finish::Length };
            output.flush(&finish);
            output.cumulative_logprob = hypothesis.cumulative_logprob;
            outputs.push(output.complete(finish));
        }
        Ok(outputs)
    }
}
