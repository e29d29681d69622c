//! A request that is computed: what its logits lead to.

mod beams;
mod embedding;
mod texts;

use super::event::{EngineEvent, PromptLogprob};
use crate::bad_words::BadWords;
use crate::batch::OutputRow;
use crate::beam::BeamSearch;
use crate::error::{Error, Result};
use crate::logprobs::LogSoftmax;
use crate::output::{CompletionOutput, Output};
use crate::request::{Decoding, Request, RequestId};
use crate::sampler::Row;
use crate::scheduler::Child;
use crate::sequence::{SequenceId, TokenId};
use crate::speculation::DraftUse;
use crate::stop::Finish;
use beams::Beams;
use embedding::Embedding;
use llmrt_tokenizer::Tokenizer;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use texts::{Picked, Rules, Texts};

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

    /// Tokens that no text is continued with.
    fn suppressed(&self) -> &[TokenId] {
        self.tokenizer.as_ref().map_or(&[], |tokenizer| tokenizer.suppressed())
    }

    /// Refuses tokens that do not exist, and stop strings where there is no text.
    pub fn check(&self, request: &Request) -> Result<()> {
        if self.tokenizer.is_none() && !request.stop.is_empty() {
            return Err(Error::NoTokenizer);
        }
        if let Decoding::Forced { tokens, .. } = &request.decoding {
            self.check_tokens(tokens)?;
        }
        self.check_tokens(&request.prompt)?;
        self.check_tokens(&request.resumed)?;
        self.check_tokens(&request.encoder_tokens)?;
        self.check_tokens(&request.stop_token_ids)
    }

    /// Refuses tokens that do not exist.
    pub fn check_tokens(&self, tokens: &[TokenId]) -> Result<()> {
        let n_vocab = self.n_tokens as u64;
        match tokens.iter().find(|&&t| u64::from(t) >= n_vocab) {
            Some(&token) => Err(Error::TokenOutOfVocab { token, n_vocab }),
            None => Ok(()),
        }
    }
}

/// The tokens of a sequence in a step.
#[derive(Clone, Copy, Default)]
pub struct Known<'a> {
    /// Those that are known.
    pub tokens: &'a [TokenId],
    /// Guesses of those after them.
    pub drafts: &'a [TokenId],
}

/// The logits of a step that are a request's.
pub type Given<'a> = [(OutputRow, Row<'a>)];

/// A request, and how far it is.
pub struct Active {
    pub request: Request,
    max_tokens: usize,
    /// Tokens of a sequence that fill the context of a text that may be shifted.
    full_at: Option<usize>,
    /// Position of the next logits that are returned: those of a prompt that is computed again are not.
    next_logits: usize,
    prompt_logprobs: Vec<PromptLogprob>,
    bad_words: BadWords,
    /// Whether the vocabulary has tokens that are never picked.
    is_suppressed: bool,
    decode: Decode,
    done: Vec<CompletionOutput>,
    pub n_preemptions: usize,
    /// What guesses came to, until it is counted elsewhere.
    pub drafted: DraftUse,
}

enum Decode {
    Texts(Texts),
    Beams(Beams),
    Embedding(Embedding),
}

impl Active {
    /// Nothing is computed yet.
    pub fn new(request: Request, n_ctx: usize, vocabulary: &Vocabulary, is_causal: bool) -> Result<Active> {
        let bad_words = BadWords::new(&request.bad_words, vocabulary.tokenizer.as_deref())?;
        let n_prompt = request.prompt.len();
        let n_left = if request.context_shift { usize::MAX } else { n_ctx - n_prompt + 1 };
        let max_tokens = request.max_tokens.unwrap_or(usize::MAX).min(n_left);
        let full_at = request.context_shift.then_some(n_ctx);
        let next_logits = request.logits_from().unwrap_or(0);
        let prompt_logprobs = Vec::new();
        let decode = match request.decoding {
            Decoding::Beam(params) => {
                Decode::Beams(Beams::new(BeamSearch::new(params, request.width(), n_prompt, max_tokens)))
            }
            Decoding::Embed { pooling, normalise } => {
                Decode::Embedding(Embedding::new(pooling, normalise, is_causal))
            }
            _ => Decode::Texts(Texts::default()),
        };
        let done = Vec::new();
        Ok(Active {
            request,
            max_tokens,
            full_at,
            next_logits,
            prompt_logprobs,
            bad_words,
            is_suppressed: !vocabulary.suppressed().is_empty(),
            decode,
            done,
            n_preemptions: 0,
            drafted: DraftUse::default(),
        })
    }

    /// The position from which the logits of its tokens, or their vectors, are requested, if they are.
    pub fn logits_from(&self) -> Option<usize> {
        if let Decode::Embedding(embedding) = &self.decode {
            return embedding.rows_from();
        }
        self.request.logits_from().filter(|_| self.n_generated() == 0)
    }

    /// How many of the largest logits its next tokens need; `None`: all.
    pub fn required_top_k(&self) -> Option<usize> {
        let is_masked = self.request.min_tokens > 0 || !self.bad_words.is_empty() || self.is_suppressed;
        if self.request.needs_logprobs() || self.logits_from().is_some() || is_masked {
            return None;
        }
        match &self.request.decoding {
            Decoding::Sample { params, .. } => params.required_top_k(),
            Decoding::Llama2c { .. } => self.request.sampler(0).ok()??.required_top_k(),
            Decoding::Beam(_) | Decoding::Embed { .. } => None,
            Decoding::Forced { required_top_k, .. } => *required_top_k,
        }
    }

    /// What reading a logit takes, in reads of a row of which the largest decide.
    pub fn cost_per_logit(&self) -> usize {
        let is_short = self.required_top_k().is_some()
            || matches!(&self.request.decoding, Decoding::Sample { params, .. } if params.n_kept().is_some())
                && !self.request.needs_logprobs();
        if is_short { 1 } else { 16 }
    }

    /// Guesses of next tokens that a sequence with `n_known` tokens has room for; none where tokens are not sampled.
    pub fn max_drafts(&self, id: SequenceId, n_known: usize) -> usize {
        let is_sampled = matches!(self.request.decoding, Decoding::Sample { .. } | Decoding::Llama2c { .. });
        let Decode::Texts(texts) = &self.decode else { return 0 };
        let n_left = if is_sampled { texts.n_left(id, self.max_tokens) } else { 0 };
        let n_free = self.full_at.map_or(usize::MAX, |full_at| full_at.saturating_sub(n_known));
        // The token after them is picked, too.
        n_left.min(n_free).saturating_sub(1)
    }

    /// Whether none of its texts goes on. A text whose sequence was not in the last step does.
    pub fn is_done(&self) -> bool {
        match &self.decode {
            Decode::Texts(texts) => !self.done.is_empty() && texts.is_empty(),
            Decode::Beams(beams) => !self.done.is_empty() && beams.is_empty(),
            Decode::Embedding(embedding) => embedding.is_complete(),
        }
    }

    /// Tokens of all its texts.
    pub fn n_generated(&self) -> usize {
        let n_done: usize = self.done.iter().map(|output| output.tokens.len()).sum();
        n_done
            + match &self.decode {
                Decode::Texts(texts) => texts.n_tokens(),
                Decode::Beams(beams) => beams.n_tokens(),
                Decode::Embedding(_) => 0,
            }
    }

    /// The sequences of its next step; `None` while its prompt is not complete. A panic on the way is an error of this
    /// request.
    pub fn pick<'t>(
        &mut self,
        id: RequestId,
        given: &Given<'_>,
        known: &dyn Fn(SequenceId) -> Known<'t>,
        vocabulary: &Vocabulary,
        events: &mut Vec<EngineEvent>,
    ) -> Result<Option<Vec<Child>>> {
        let mut own = Vec::new();
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.pick_next(id, given, known, vocabulary, &mut own)));
        events.extend(own);
        outcome.unwrap_or(Err(Error::RequestPanicked { id }))
    }

    fn pick_next<'t>(
        &mut self,
        id: RequestId,
        given: &Given<'_>,
        known: &dyn Fn(SequenceId) -> Known<'t>,
        vocabulary: &Vocabulary,
        events: &mut Vec<EngineEvent>,
    ) -> Result<Option<Vec<Child>>> {
        if let Decode::Embedding(embedding) = &mut self.decode {
            return embedding.take(given, self.request.prompt.len());
        }
        if self.logits_from().is_some() {
            for (row, logits) in given {
                if let (Row::All(logits), true) = (logits, row.position == self.next_logits) {
                    self.next_logits += 1;
                    self.take_prompt_row(id, row.position, logits, events)?;
                }
            }
        }
        // Rows after which a token is missing: those of the last known one of a sequence, and of drafts.
        let is_last = |row: &OutputRow| row.position + 1 >= known(row.id).tokens.len();
        let last: Vec<_> = given.iter().filter(|(row, _)| is_last(row)).copied().collect();
        if last.is_empty() {
            return Ok(None);
        }
        if self.max_tokens == 0 {
            self.end_without_tokens(vocabulary)?;
            return Ok(Some(Vec::new()));
        }
        match &mut self.decode {
            Decode::Beams(beams) => {
                let stops = |token| {
                    !self.request.ignore_eos && vocabulary.is_eog(token)
                        || self.request.stop_token_ids.contains(&token)
                };
                let next = beams.pick(&last, vocabulary.suppressed(), stops)?;
                if next.is_empty() {
                    self.done = beams.complete(&self.request, vocabulary)?;
                }
                Ok(Some(next))
            }
            Decode::Texts(texts) => {
                let rules = Rules {
                    id,
                    request: &self.request,
                    bad_words: &self.bad_words,
                    max_tokens: self.max_tokens,
                    full_at: self.full_at,
                    vocabulary,
                };
                let mut picked = Picked::default();
                if texts.is_new() {
                    let outputs = (0..self.request.width())
                        .map(|i| Output::new(&self.request, i, vocabulary.tokenizer.as_ref()))
                        .collect::<Result<_>>()?;
                    texts.start(outputs, last[0].0.id);
                    texts.resume(&rules, &mut picked)?;
                }
                texts.pick(&rules, &last, known, &mut picked)?;
                let streams = self.request.width() == self.request.n;
                events.extend(picked.events.into_iter().filter(|_| streams));
                self.done.extend(picked.done);
                self.drafted.add(picked.drafted);
                Ok(Some(picked.next))
            }
            Decode::Embedding(_) => Ok(None),
        }
    }

    /// The logits after a token of the prompt: as they are, and as log-probabilities of its next token.
    fn take_prompt_row(
        &mut self,
        request: RequestId,
        position: usize,
        logits: &[f32],
        events: &mut Vec<EngineEvent>,
    ) -> Result<()> {
        if let (Some(n), Some(&token)) = (self.request.prompt_logprobs, self.request.prompt.get(position + 1))
        {
            let row = LogSoftmax::new(logits)?;
            self.prompt_logprobs.push(PromptLogprob { token: row.of(token), top: row.top(n) });
        }
        if self.request.prompt_logits.is_some_and(|from| position >= from) {
            events.push(EngineEvent::Logits { request, position, logits: logits.to_vec() });
        }
        Ok(())
    }

    /// The log-probabilities of the prompt's tokens, which end with its computation.
    pub fn take_prompt_logprobs(&mut self) -> Vec<PromptLogprob> {
        std::mem::take(&mut self.prompt_logprobs)
    }

    /// The vectors of an embedding, which end with its computation.
    pub fn take_embeddings(&mut self) -> Vec<Vec<f32>> {
        match &mut self.decode {
            Decode::Embedding(embedding) => embedding.take_vectors(),
            Decode::Texts(_) | Decode::Beams(_) => Vec::new(),
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
            Decode::Embedding(_) => {}
        }
    }

    /// Its texts: the `n` best, where more were generated.
    pub fn complete(mut self) -> Vec<CompletionOutput> {
        if self.request.width() > self.request.n && !self.request.is_beam_search() {
            self.done.sort_by(|a, b| {
                b.cumulative_logprob.total_cmp(&a.cumulative_logprob).then(a.index.cmp(&b.index))
            });
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
        match &mut self.decode {
            Decode::Texts(texts) if texts.is_new() => self.done = empty_texts(&self.request, finish),
            Decode::Texts(texts) => self.done.extend(texts.end_all(finish)),
            Decode::Beams(_) | Decode::Embedding(_) => {}
        }
        self.complete()
    }
}

/// The logits without these tokens.
fn without<'l>(logits: &'l [f32], forbidden: &[TokenId]) -> Cow<'l, [f32]> {
    let mut masked = Cow::Borrowed(logits);
    for &id in forbidden {
        if let Some(logit) = masked.to_mut().get_mut(id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
    masked
}

/// The texts of a request whose prompt is not computed yet.
fn empty_texts(request: &Request, finish: &Finish) -> Vec<CompletionOutput> {
    let text = |index| CompletionOutput {
        index,
        text: String::new(),
        tokens: Vec::new(),
        cumulative_logprob: 0.0,
        finish: finish.clone(),
    };
    (0..request.n).map(text).collect()
}
