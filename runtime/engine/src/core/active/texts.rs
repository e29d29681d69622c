//! The texts of a request, each sampled for itself.

use super::{EngineEvent, Known, Vocabulary, without};
use crate::bad_words::BadWords;
use crate::batch::OutputRow;
use crate::error::{Error, Result};
use crate::logprobs::LogSoftmax;
use crate::output::{CompletionOutput, Output, SampledToken};
use crate::request::{Decoding, Request, RequestId};
use crate::sampler::{Row, Sampler};
use crate::scheduler::Child;
use crate::sequence::{SequenceId, TokenId};
use crate::speculation::DraftUse;
use crate::stop::Finish;
use std::borrow::Cow;

/// Texts that go on, with their sequences.
#[derive(Default)]
pub struct Texts {
    live: Vec<(SequenceId, Output)>,
    is_started: bool,
}

/// What the texts of a request keep to.
pub struct Rules<'a> {
    pub id: RequestId,
    pub request: &'a Request,
    pub bad_words: &'a BadWords,
    pub max_tokens: usize,
    /// Tokens of a sequence that fill the context of a text that may be shifted.
    pub full_at: Option<usize>,
    pub vocabulary: &'a Vocabulary,
}

/// What a step led to.
#[derive(Default)]
pub struct Picked {
    pub next: Vec<Child>,
    pub events: Vec<EngineEvent>,
    pub done: Vec<CompletionOutput>,
    pub drafted: DraftUse,
}

impl Picked {
    /// Appends a token to a text, unless it ends the text without being part of it; why the text ends, if it does.
    fn push(
        &mut self,
        rules: &Rules<'_>,
        output: &mut Output,
        sampled: SampledToken,
    ) -> Result<Option<Finish>> {
        let Rules { id, request, max_tokens, vocabulary, .. } = *rules;
        if let Some(finish) = ends(request, output, sampled.token, vocabulary) {
            return Ok(Some(finish));
        }
        output.cumulative_logprob += sampled.logprob.unwrap_or(0.0);
        let (text, stop) = output.push(sampled.token)?;
        let (index, token) = (output.index, SampledToken { text, ..sampled });
        self.events.push(EngineEvent::Token { request: id, index, token });
        let stop = stop.filter(|_| output.tokens.len() >= request.min_tokens).map(Finish::Stop);
        let is_last = output.tokens.len() >= max_tokens || is_exhausted(request, output);
        Ok(stop.or(is_last.then_some(Finish::Length)))
    }

    /// Ends a text.
    fn end(&mut self, request: RequestId, mut output: Output, finish: Finish) {
        let (index, text) = (output.index, output.flush(&finish));
        self.events.push(EngineEvent::TextEnded { request, index, text, finish: finish.clone() });
        self.done.push(output.complete(finish));
    }
}

impl Texts {
    /// Whether the prompt is not computed yet.
    pub fn is_new(&self) -> bool {
        !self.is_started
    }

    /// All texts go on from the prompt's sequence.
    pub fn start(&mut self, outputs: Vec<Output>, sequence: SequenceId) {
        self.live = outputs.into_iter().map(|output| (sequence, output)).collect();
        self.is_started = true;
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub fn n_tokens(&self) -> usize {
        self.live.iter().map(|(_, output)| output.tokens.len()).sum()
    }

    /// The tokens that the text is known to begin with, as they were sampled once.
    pub fn resume(&mut self, rules: &Rules<'_>, picked: &mut Picked) -> Result<()> {
        for &token in &rules.request.resumed {
            let Some((_, output)) = self.live.first_mut() else { break };
            output.sampler.iter_mut().for_each(Sampler::skip);
            if let Some(finish) = picked.push(rules, output, SampledToken::new(token))? {
                let (_, output) = self.live.remove(0);
                picked.end(rules.id, output, finish);
            }
        }
        Ok(())
    }

    /// A token for each text whose logits are given, and more where drafts are what is picked.
    pub fn pick<'t>(
        &mut self,
        rules: &Rules<'_>,
        given: &[(OutputRow, Row<'_>)],
        known: &dyn Fn(SequenceId) -> Known<'t>,
        picked: &mut Picked,
    ) -> Result<()> {
        let Rules { id, request, full_at, .. } = *rules;
        let (mut sampled, mut others) = (Vec::new(), Vec::new());
        for (sequence, mut output) in self.live.drain(..) {
            let rows = given.iter().filter(|(row, _)| row.id == sequence).map(|(_, row)| *row);
            let n_rows = rows.clone().count();
            if n_rows == 0 {
                others.push((sequence, output));
                continue;
            }
            let Known { tokens, drafts } = known(sequence);
            let mut history = Cow::Borrowed(tokens);
            let mut n_right = 0;
            let mut finish = None;
            // The row after a draft counts if the token that was picked is that draft.
            for (n_accepted, row) in rows.enumerate() {
                if full_at.is_some_and(|full_at| history.len() >= full_at) {
                    finish = Some(Finish::Length);
                    break;
                }
                let forbidden = forbidden(rules, &output);
                let sampled = sample(request, &mut output, row, &history, &forbidden)?;
                let token = sampled.token;
                let is_right = drafts.get(n_accepted) == Some(&token) && n_accepted + 1 < n_rows;
                n_right += usize::from(is_right);
                finish = picked.push(rules, &mut output, sampled)?;
                if finish.is_some() {
                    break;
                }
                if full_at == Some(history.len() + 1) {
                    picked.events.push(EngineEvent::ContextFull { request: id });
                }
                if !is_right {
                    picked.next.push(Child { parent: sequence, n_accepted, token });
                    break;
                }
                history.to_mut().push(token);
            }
            picked.drafted.count(n_rows - 1, n_right);
            match finish {
                Some(finish) => picked.end(id, output, finish),
                None => sampled.push((sequence, output)),
            }
        }
        // Those that go on, in the order of their children.
        sampled.extend(others);
        self.live = sampled;
        Ok(())
    }

    /// Tokens that the text of a sequence may have, besides those that it has.
    pub fn n_left(&self, id: SequenceId, max_tokens: usize) -> usize {
        let output = self.live.iter().find(|(sequence, _)| *sequence == id);
        output.map_or(0, |(_, output)| max_tokens.saturating_sub(output.tokens.len()))
    }

    /// The sequences of the last step's children, in order.
    pub fn rename(&mut self, ids: &[SequenceId]) {
        self.live.iter_mut().zip(ids).for_each(|((sequence, _), id)| *sequence = *id);
    }

    /// Ends all texts as they are.
    pub fn end_all(&mut self, finish: &Finish) -> Vec<CompletionOutput> {
        let end = |(_, mut output): (SequenceId, Output)| {
            output.flush(finish);
            output.complete(finish.clone())
        };
        self.live.drain(..).map(end).collect()
    }
}

/// The next token of a text.
fn sample(
    request: &Request,
    output: &mut Output,
    row: Row<'_>,
    history: &[TokenId],
    forbidden: &[TokenId],
) -> Result<SampledToken> {
    let masked;
    let row = match row {
        Row::All(logits) => {
            masked = without(logits, forbidden);
            Row::All(&masked)
        }
        row => row,
    };
    let token = match (&request.decoding, &mut output.sampler) {
        (Decoding::Forced { tokens, .. }, _) => {
            tokens.get(output.tokens.len()).copied().ok_or(Error::NoLogits)?
        }
        (_, Some(sampler)) => sampler.sample(row, history, output.tokens.len())?,
        (_, None) => return Err(Error::NoLogits),
    };
    let mut sampled = SampledToken::new(token);
    if let (true, Row::All(logits)) = (request.needs_logprobs(), row) {
        let row = LogSoftmax::new(logits)?;
        sampled.logprob = Some(row.of(token).logprob);
        sampled.top_logprobs = row.top(request.logprobs.unwrap_or(0));
    }
    Ok(sampled)
}

/// Tokens that must not come next: those that the file forbids, those that end a text too short, and those that complete a bad
/// word.
fn forbidden(rules: &Rules<'_>, output: &Output) -> Vec<TokenId> {
    let Rules { request, bad_words, vocabulary, .. } = *rules;
    let mut forbidden: Vec<TokenId> = bad_words.next(&output.tokens).collect();
    if !matches!(request.decoding, Decoding::Forced { .. }) {
        forbidden.extend(vocabulary.suppressed());
    }
    if output.tokens.len() < request.min_tokens && !request.ignore_eos {
        let ends = |id: &TokenId| vocabulary.is_eog(*id) || request.stop_token_ids.contains(id);
        forbidden.extend((0..vocabulary.n_tokens as TokenId).filter(ends));
    }
    forbidden
}

/// Why a token ends a text without being part of it.
fn ends(request: &Request, output: &Output, token: TokenId, vocabulary: &Vocabulary) -> Option<Finish> {
    let is_forced = matches!(request.decoding, Decoding::Forced { .. });
    if is_forced || output.tokens.len() < request.min_tokens {
        return None;
    }
    if request.stop_token_ids.contains(&token) {
        return Some(Finish::StopToken(token));
    }
    (!request.ignore_eos && vocabulary.is_eog(token)).then_some(Finish::Eos)
}

/// Whether there are no more given tokens.
fn is_exhausted(request: &Request, output: &Output) -> bool {
    matches!(&request.decoding, Decoding::Forced { tokens, .. } if output.tokens.len() >= tokens.len())
}
