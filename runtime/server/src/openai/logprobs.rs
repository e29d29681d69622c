//! Log-probabilities in the forms of the two routes.

use llmrt::engine::core::PromptLogprob;
use llmrt::engine::logprobs::TokenLogprob;
use llmrt::engine::output::SampledToken;
use llmrt::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// A token's text, with replacement characters for bytes that are no UTF-8, and its bytes.
fn piece(tokenizer: &Tokenizer, id: u32) -> (String, Vec<u8>) {
    let bytes = tokenizer.token_bytes(id).map(|bytes| bytes.into_owned()).unwrap_or_default();
    (String::from_utf8_lossy(&bytes).into_owned(), bytes)
}

/// JSON has no infinities: vLLM writes -9999 for a forbidden token.
fn number(logprob: f64) -> f64 {
    logprob.max(-9999.0)
}

/// An entry of `logprobs.content` of a chat.
pub fn of_chat(tokenizer: &Tokenizer, token: &SampledToken) -> Value {
    let entry = |id: u32, logprob: f64| {
        let (text, bytes) = piece(tokenizer, id);
        json!({ "token": text, "logprob": number(logprob), "bytes": bytes })
    };
    let mut chosen = entry(token.token, token.logprob.unwrap_or_default());
    chosen["top_logprobs"] = token.top_logprobs.iter().map(|top| entry(top.token, top.logprob)).collect();
    chosen
}

/// `logprobs` of a completion, which grows token by token.
#[derive(Clone, Debug, Default)]
pub struct Legacy {
    tokens: Vec<String>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
    /// Characters so far.
    n_chars: usize,
}

impl Legacy {
    /// A generated token.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: &SampledToken, n_top: usize) {
        let chosen = TokenLogprob { token: token.token, logprob: token.logprob.unwrap_or_default() };
        self.push_entry(tokenizer, token.token, Some((chosen, &token.top_logprobs)), n_top);
    }

    /// The tokens of an echoed prompt, of which the first has no log-probability.
    pub fn push_prompt(
        &mut self,
        tokenizer: &Tokenizer,
        tokens: &[u32],
        logprobs: &[PromptLogprob],
        n_top: usize,
    ) {
        for (i, token) in tokens.iter().enumerate() {
            let known = i.checked_sub(1).and_then(|i| logprobs.get(i));
            self.push_entry(tokenizer, *token, known.map(|l| (l.token, &l.top[..])), n_top);
        }
    }

    fn push_entry(
        &mut self,
        tokenizer: &Tokenizer,
        id: u32,
        logprob: Option<(TokenLogprob, &[TokenLogprob])>,
        n_top: usize,
    ) {
        let (text, _) = piece(tokenizer, id);
        self.text_offset.push(self.n_chars);
        self.n_chars += text.chars().count();
        self.tokens.push(text);
        let Some((chosen, top)) = logprob else {
            self.token_logprobs.push(Value::Null);
            self.top_logprobs.push(Value::Null);
            return;
        };
        self.token_logprobs.push(number(chosen.logprob).into());
        let mut map = Map::new();
        for entry in top.iter().take(n_top).chain([&chosen]) {
            map.entry(piece(tokenizer, entry.token).0).or_insert(number(entry.logprob).into());
        }
        self.top_logprobs.push(map.into());
    }

    /// Where the next token begins.
    pub fn n_chars(&self) -> usize {
        self.n_chars
    }

    /// The first token begins there.
    pub fn starting_at(n_chars: usize) -> Legacy {
        Legacy { n_chars, ..Legacy::default() }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "tokens": self.tokens, "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs, "text_offset": self.text_offset,
        })
    }
}

/// vLLM's `prompt_logprobs`: null for the first token, then the own and the likeliest tokens of each place by id.
pub fn of_prompt(tokenizer: &Tokenizer, logprobs: &[PromptLogprob]) -> Value {
    let place = |place: &PromptLogprob| {
        let mut map = Map::new();
        let rank = |token: u32| place.top.iter().position(|t| t.token == token).map(|i| i + 1);
        for entry in [&place.token].into_iter().chain(&place.top) {
            map.entry(entry.token.to_string()).or_insert_with(|| {
                json!({
                    "logprob": number(entry.logprob), "rank": rank(entry.token),
                    "decoded_token": piece(tokenizer, entry.token).0,
                })
            });
        }
        Value::from(map)
    };
    [Value::Null].into_iter().chain(logprobs.iter().map(place)).collect()
}
