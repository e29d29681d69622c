//! One request from its prompt to its text, shown as it is generated.

use crate::error::{Exit, Result};
use crate::interrupt;
use crate::progress::PromptBar;
use crate::session::{self, Core};
use llmrt_engine::core::Usage;
use llmrt_engine::output::CompletionOutput;
use llmrt_engine::{EngineEvent, Finish, Request, RequestId, RequestOutput, TokenId};
use std::time::{Duration, Instant};

/// Puts fewer tokens in the place of those of a text that fills the context ([`EngineCore::replace`]), given the tokens
/// generated so far; `false` where there is nothing to drop, so that the text ends.
///
/// [`EngineCore::replace`]: llmrt_engine::EngineCore::replace
pub type ShiftContext<'a> = dyn FnMut(&mut Core, RequestId, &[TokenId]) -> Result<bool> + 'a;

/// What became of a request.
pub struct Outcome {
    /// Why the text ended.
    pub finish: Finish,
    /// Whether it ended because the context is full.
    pub is_context_full: bool,
    /// The text that was shown.
    pub text: String,
    /// The generated tokens, without one that ends the text.
    pub tokens: Vec<TokenId>,
    /// Tokens of the prompt that went through the model: those that were not cached, unless Ctrl-C came.
    pub n_prompt: usize,
    /// Time up to the first generated token.
    pub prompt: Duration,
    /// Steps after the prompt's last, one token each.
    pub n_decoded: usize,
    /// Time for them.
    pub generate: Duration,
}

/// Computes a request with one text. `show` gets the text piece by piece, only whole characters. Ctrl-C ends it with what it
/// has; after an error the core does not have it any more.
pub fn generate(
    core: &mut Core,
    request: Request,
    shift: Option<&mut ShiftContext<'_>>,
    show: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Outcome> {
    let mut text = Text {
        n_predict: request.max_tokens,
        bar: Some(PromptBar::new(request.prompt.len())),
        started: Instant::now(),
        first_token: None,
        tokens: Vec::new(),
        shown: String::new(),
        is_context_full: false,
    };
    let id = core.add(request)?;
    let ended = text.compute(core, id, shift, show);
    if ended.is_err() {
        let _ = core.abort(id);
    }
    text.outcome(ended?, show)
}

/// A text on its way.
struct Text {
    n_predict: Option<usize>,
    bar: Option<PromptBar>,
    started: Instant,
    first_token: Option<Instant>,
    tokens: Vec<TokenId>,
    shown: String,
    is_context_full: bool,
}

impl Text {
    /// Steps until the request has ended.
    fn compute(
        &mut self,
        core: &mut Core,
        id: RequestId,
        mut shift: Option<&mut ShiftContext<'_>>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<RequestOutput> {
        loop {
            let events = match session::step(core) {
                Err(e) if e.exit == Exit::Interrupted => return Ok(core.abort(id)?),
                events => events?,
            };
            if let (Some(bar), Some((_, n_computed))) = (&self.bar, core.progress(id)) {
                bar.show(n_computed);
            }
            for event in events {
                match event {
                    EngineEvent::Token { token, .. } => {
                        self.first_token.get_or_insert_with(Instant::now);
                        self.tokens.push(token.token);
                        self.show(&token.text, show)?;
                    }
                    EngineEvent::TextEnded { text, .. } => self.show(&text, show)?,
                    EngineEvent::ContextFull { .. } => {
                        let shift = shift.as_mut();
                        self.is_context_full =
                            !shift.map_or(Ok(false), |shift| shift(core, id, &self.tokens))?;
                        if self.is_context_full {
                            return Ok(core.abort(id)?);
                        }
                    }
                    EngineEvent::Finished(output) => return Ok(output),
                    EngineEvent::Failed { error, .. } => return Err(error.into()),
                    EngineEvent::Logits { .. } => {}
                }
            }
            if interrupt::is_requested() {
                return Ok(core.abort(id)?);
            }
        }
    }

    fn show(&mut self, text: &str, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.bar = None;
        self.shown.push_str(text);
        show(text)
    }

    fn outcome(mut self, ended: RequestOutput, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<Outcome> {
        self.bar = None;
        let Usage { n_computed, n_cached, .. } = ended.usage;
        let (text, finish) = match ended.outputs.into_iter().next() {
            Some(CompletionOutput { text, finish, .. }) => (text, finish),
            None => (String::new(), Finish::Cancelled),
        };
        // A text that is aborted has held back its last characters.
        let held_back = text.strip_prefix(&self.shown).unwrap_or_default().to_string();
        self.show(&held_back, show)?;
        let finish = if self.is_context_full { Finish::Length } else { finish };
        let n_tokens = self.tokens.len();
        let is_short = self.n_predict.is_none_or(|n| n_tokens < n);
        let n_picked = n_tokens + usize::from(finish == Finish::Eos);
        let first_token = self.first_token.unwrap_or_else(Instant::now);
        Ok(Outcome {
            is_context_full: finish == Finish::Length && is_short,
            text: self.shown,
            tokens: self.tokens,
            n_prompt: n_computed.saturating_sub(n_cached),
            prompt: first_token - self.started,
            n_decoded: n_picked.saturating_sub(1),
            generate: first_token.elapsed(),
            finish,
        })
    }
}
