//! A text that is generated: its tokens, what of them is text that may be shown, and when it ends.

use crate::error::Result;
use crate::logprobs::TokenLogprob;
use crate::request::Request;
use crate::sampler::Sampler;
use crate::sequence::TokenId;
use crate::stop::{Finish, StopFilter};
use llmrt_tokenizer::{Decoder, Tokenizer};
use std::sync::Arc;

/// A token of a text, and what is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct SampledToken {
    /// The token.
    pub token: TokenId,
    /// Text that can be shown now: whole characters, none of which may become a stop string.
    pub text: String,
    /// Its log-probability, if it was requested.
    pub logprob: Option<f64>,
    /// The likeliest tokens of its place.
    pub top_logprobs: Vec<TokenLogprob>,
}

impl SampledToken {
    /// A token that completes no text, without log-probabilities.
    pub fn new(token: TokenId) -> SampledToken {
        SampledToken { token, text: String::new(), logprob: None, top_logprobs: Vec::new() }
    }
}

/// A text that ended.
#[derive(Clone, PartialEq, Debug)]
pub struct CompletionOutput {
    /// Which of the request's texts.
    pub index: usize,
    /// Its text, up to a stop string.
    pub text: String,
    /// Its tokens, without one that ended it, and without those that have no part in the text since a stop string ended it
    /// before them.
    pub tokens: Vec<TokenId>,
    /// Sum of its tokens' log-probabilities, where these were computed.
    pub cumulative_logprob: f64,
    /// Why it ended.
    pub finish: Finish,
}

/// A text in the making.
pub(crate) struct Output {
    pub index: usize,
    pub sampler: Option<Sampler>,
    pub tokens: Vec<TokenId>,
    pub cumulative_logprob: f64,
    text: Option<Text>,
}

/// Tokens on their way to text.
struct Text {
    decoder: Decoder<Arc<Tokenizer>>,
    filter: StopFilter,
    shown: String,
    /// Where the text of each token begins.
    starts: Vec<usize>,
    n_decoded: usize,
}

impl Output {
    /// No token yet. Without a tokenizer there is no text.
    pub fn new(request: &Request, index: usize, tokenizer: Option<&Arc<Tokenizer>>) -> Result<Output> {
        let filter = StopFilter::new(request.stop.clone())?;
        let text = tokenizer.map(|tokenizer| {
            let decoder = Decoder::new(tokenizer.clone(), false);
            let decoder = if request.continues { decoder.continuing() } else { decoder };
            Text { decoder, filter, shown: String::new(), starts: Vec::new(), n_decoded: 0 }
        });
        let sampler = request.sampler(index)?;
        Ok(Output { index, sampler, tokens: Vec::new(), cumulative_logprob: 0.0, text })
    }

    /// Appends a token; the text that it completes, and the stop string that is in it, if any.
    pub fn push(&mut self, token: TokenId) -> Result<(String, Option<String>)> {
        self.tokens.push(token);
        let Some(text) = &mut self.text else { return Ok(Default::default()) };
        text.starts.push(text.n_decoded);
        let piece = text.decoder.push(token)?;
        text.n_decoded += piece.len();
        let streamed = text.filter.push(&piece);
        text.shown.push_str(&streamed.text);
        Ok((streamed.text, streamed.stop))
    }

    /// The text that was held back, now that no more comes; none after a stop string.
    pub fn flush(&mut self, finish: &Finish) -> String {
        let Some(text) = self.text.as_mut().filter(|_| !matches!(finish, Finish::Stop(_))) else {
            return String::new();
        };
        let streamed = text.filter.push(&text.decoder.flush());
        let mut rest = streamed.text;
        if streamed.stop.is_none() {
            rest += &text.filter.finish();
        }
        text.shown.push_str(&rest);
        rest
    }

    /// What it came to.
    pub fn complete(self, finish: Finish) -> CompletionOutput {
        let Output { index, mut tokens, cumulative_logprob, text, .. } = self;
        let text = text.map_or_else(String::new, |text| {
            if matches!(finish, Finish::Stop(_)) {
                let is_shown = |start: &&usize| **start < text.shown.len();
                tokens.truncate(text.starts.iter().take_while(is_shown).count());
            }
            text.shown
        });
        CompletionOutput { index, text, tokens, cumulative_logprob, finish }
    }
}
