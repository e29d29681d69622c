//! A request that is computed: what its logits lead to.

mod beams;
mod texts;

use super::event::EngineEvent;
use crate::batch::OutputRow;
use crate::beam::BeamSearch;
use crate::error::{Error, Result};
use crate::output::{CompletionOutput, Output};
use crate::request::{Decoding, Request, RequestId};
use crate::sampler::Row;
use crate::scheduler::Child;
use crate::sequence::{SequenceId, TokenId};
use crate::stop::Finish;
use beams::Beams;
use llmrt_tokenizer::Tokenizer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use texts::Texts;

/// The tokens of a model.
pub struct Vocabulary {
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub n_tokens: usize,
}

impl Vocabulary {
    /// Whether a token ends a text.
    fn is_eog(&self, token: TokenId) -> bool {
        self.tokenizer.as_ref().is_some_and(|tokenizer| tokenizer.is_eog(token))
    }

    /// Refuses tokens that do not exist, and stop strings where there is no text.
    pub fn check(&self, request: &Request) -> Result<()> {
        if self.tokenizer.is_none() && !request.stop.is_empty() {
            return Err(Error::NoTokenizer);
        }
        let n_vocab = self.n_tokens as u64;
        let forced = match &request.decoding {
            Decoding::Forced(tokens) => tokens.as_slice(),
            _ => &[],
        };
        let mut tokens = request.prompt.iter().chain(&request.stop_token_ids).chain(forced);
        match tokens.find(|&&t| u64::from(t) >= n_vocab) {
            Some(&token) => Err(Error::TokenOutOfVocab { token, n_vocab }),
            None => Ok(()),
        }
    }
}

/// The logits of a step that are a request's.
pub type Given<'a> = [(OutputRow, Row<'a>)];

/// A request, and how far it is.
pub struct Active {
    pub request: Request,
    max_tokens: usize,
    decode: Decode,
    done: Vec<CompletionOutput>,
}

enum Decode {
    Texts(Texts),
    Beams(Beams),
}

impl Active {
    /// Nothing is computed yet.
    pub fn new(request: Request, n_ctx: usize) -> Result<Active> {
        let n_prompt = request.prompt.len();
        let max_tokens = request.max_tokens.unwrap_or(usize::MAX).min(n_ctx - n_prompt + 1);
        let decode = match request.decoding {
            Decoding::Beam(params) => {
                Decode::Beams(Beams::new(BeamSearch::new(params, request.width(), n_prompt, max_tokens)))
            }
            _ => Decode::Texts(Texts::default()),
        };
        Ok(Active { request, max_tokens, decode, done: Vec::new() })
    }

    /// Whether logits of all its tokens are requested.
    pub fn needs_all_logits(&self) -> bool {
        self.request.prompt_logits && self.n_generated() == 0
    }

    /// How many of the largest logits its next tokens need; `None`: all.
    pub fn required_top_k(&self) -> Option<usize> {
        let is_masked = self.request.min_tokens > 0;
        if self.request.needs_logprobs() || self.needs_all_logits() || is_masked {
            return None;
        }
        match &self.request.decoding {
            Decoding::Sample { params, .. } => params.required_top_k(),
            Decoding::Llama2c { .. } => self.request.sampler(0).ok()??.required_top_k(),
            Decoding::Beam(_) => None,
            Decoding::Forced(_) => Some(1),
        }
    }

    /// Whether none of its texts goes on. A text whose sequence was not in the last step does.
    pub fn is_done(&self) -> bool {
        !self.done.is_empty()
            && match &self.decode {
                Decode::Texts(texts) => texts.is_empty(),
                Decode::Beams(beams) => beams.is_empty(),
            }
    }

    /// Tokens of all its texts.
    pub fn n_generated(&self) -> usize {
        let n_done: usize = self.done.iter().map(|output| output.tokens.len()).sum();
        n_done
            + match &self.decode {
                Decode::Texts(texts) => texts.n_tokens(),
                Decode::Beams(beams) => beams.n_tokens(),
            }
    }

    /// The sequences of its next step; `None` while its prompt is not complete. A panic on the way is an error of this
    /// request.
    pub fn pick<'t>(
        &mut self,
        id: RequestId,
        given: &Given<'_>,
        tokens: &dyn Fn(SequenceId) -> &'t [TokenId],
        vocabulary: &Vocabulary,
        events: &mut Vec<EngineEvent>,
    ) -> Result<Option<Vec<Child>>> {
        let mut own = Vec::new();
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.pick_next(id, given, tokens, vocabulary, &mut own)));
        events.extend(own);
        outcome.unwrap_or(Err(Error::RequestPanicked { id }))
    }

    fn pick_next<'t>(
        &mut self,
        id: RequestId,
        given: &Given<'_>,
        tokens: &dyn Fn(SequenceId) -> &'t [TokenId],
        vocabulary: &Vocabulary,
        events: &mut Vec<EngineEvent>,
    ) -> Result<Option<Vec<Child>>> {
        if self.needs_all_logits() {
            events.extend(given.iter().filter_map(|(row, logits)| match logits {
                Row::All(logits) => {
                    let (position, logits) = (row.position, logits.to_vec());
                    Some(EngineEvent::Logits { request: id, position, logits })
                }
                Row::Largest(_) => None,
            }));
        }
        // Rows after which a token is missing: the last known one of a sequence.
        let is_last = |row: &OutputRow| row.position + 1 == tokens(row.id).len();
        let last: Vec<_> = given.iter().filter(|(row, _)| is_last(row)).copied().collect();
        if last.is_empty() {
            return Ok(None);
        }
        if self.max_tokens == 0 || self.request.max_tokens == Some(0) {
            self.end_without_tokens(vocabulary)?;
            return Ok(Some(Vec::new()));
        }
        match &mut self.decode {
            Decode::Beams(beams) => {
                let stops = |token| {
                    !self.request.ignore_eos && vocabulary.is_eog(token)
                        || self.request.stop_token_ids.contains(&token)
                };
                let next = beams.pick(&last, stops)?;
                if next.is_empty() {
                    self.done = beams.complete(&self.request, vocabulary)?;
                }
                Ok(Some(next))
            }
            Decode::Texts(texts) => {
                if texts.is_new() {
                    let outputs = (0..self.request.width())
                        .map(|i| Output::new(&self.request, i, vocabulary.tokenizer.as_ref()))
                        .collect::<Result<_>>()?;
                    texts.start(outputs, last[0].0.id);
                }
                let picked = texts.pick(id, &self.request, self.max_tokens, &last, tokens, vocabulary)?;
                let streams = self.request.width() == self.request.n;
                events.extend(picked.events.into_iter().filter(|_| streams));
                self.done.extend(picked.done);
                Ok(Some(picked.next))
            }
        }
    }

    fn end_without_tokens(&mut self, vocabulary: &Vocabulary) -> Result<()> {
        for i in 0..self.request.n {
            let output = Output::new(&self.request, i, vocabulary.tokenizer.as_ref())?;
            self.done.push(output.complete(Finish::Length));
        }
        Ok(())
    }

    /// The sequences of the children that the last call of [`Active::pick`] returned.
    pub fn rename(&mut self, ids: &[SequenceId]) {
        match &mut self.decode {
            Decode::Texts(texts) => texts.rename(ids),
            Decode::Beams(beams) => beams.rename(ids),
        }
    }

    /// Its texts: the `n` best, where more were generated.
    pub fn complete(mut self) -> Vec<CompletionOutput> {
        if self.request.width() > self.request.n && !self.request.is_beam_search() {
            self.done.sort_by(|a, b| b.cumulative_logprob.total_cmp(&a.cumulative_logprob));
        } else if !self.request.is_beam_search() {
            self.done.sort_by_key(|output| output.index);
        }
        self.done.truncate(self.request.n);
        self.done
    }

    /// Its texts as far as they are.
    pub fn cancel(self) -> Vec<CompletionOutput> {
        self.end_all(&Finish::Cancelled)
    }

    /// The same, ended for this reason.
    pub fn end_all(mut self, finish: &Finish) -> Vec<CompletionOutput> {
        if let Decode::Texts(texts) = &mut self.decode {
            self.done.extend(texts.end_all(finish));
        }
        self.complete()
    }
}
