//! The generation loop: prompt in, text out, one token after the other.

use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::progress::PromptBar;
use crate::session;
use llmrt_engine::{Engine, Finish, Logits, Sampler, SequenceId, Step, StopFilter, TokenId};
use llmrt_tokenizer::{Decoder, Tokenizer};
use std::time::{Duration, Instant};

/// Makes room in a sequence that fills the context, given the tokens generated so far; `false` where there is nothing
/// to drop. The sequence keeps its id and ends with the same tokens.
pub type MakeRoom<'a> = dyn FnMut(&mut Engine, &[TokenId]) -> Result<bool> + 'a;

/// A text to generate.
pub struct Request<'a> {
    /// The tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Most tokens to generate; `None`: as many as the model likes.
    pub n_predict: Option<usize>,
    /// Texts that end the generation and are not shown.
    pub stops: Vec<String>,
    /// Whether the text goes on another one, so that a space in front of it counts.
    pub continues: bool,
    /// Whether tokens that end a text do not end this one.
    pub ignores_eog: bool,
    /// What happens when the context is full; `None`: the text ends.
    pub make_room: Option<&'a mut MakeRoom<'a>>,
}

/// What became of it.
pub struct Outcome {
    /// Why the text ended.
    pub finish: Finish,
    /// Whether it ended because the context is full.
    pub is_context_full: bool,
    /// The text that was shown.
    pub text: String,
    /// Tokens of the prompt that went through the model: those it had not seen before, unless Ctrl-C came.
    pub n_prompt: usize,
    /// Time up to the first generated token.
    pub prompt: Duration,
    /// Tokens generated, without one that ends the text.
    pub n_generated: usize,
    /// Steps after the prompt's last, one token each.
    pub n_decoded: usize,
    /// Time for them.
    pub generate: Duration,
}

/// Lets the model go on with a sequence. `show` gets the text piece by piece, only whole characters.
///
/// The token that ends the text is appended to the sequence if there is room, as the next turn of a chat expects it.
pub fn generate(
    engine: &mut Engine,
    id: SequenceId,
    sampler: &mut Sampler,
    mut request: Request<'_>,
    show: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Outcome> {
    let started = Instant::now();
    let n_pending = n_missing(engine, id);
    let mut n_prompt = n_pending;
    let mut text = Text::new(&request)?;
    let mut first_token_at = None;
    let mut generated = Vec::new();
    let mut is_context_full = false;
    engine.set_required_top_k(id, sampler.required_top_k())?;

    let finish = loop {
        let Some(step) = next_logits(engine, id, usize::MAX)? else {
            if generated.is_empty() {
                n_prompt = n_pending.saturating_sub(n_missing(engine, id));
            }
            break Finish::Cancelled;
        };
        if request.n_predict == Some(0) {
            break Finish::Length;
        }
        // There is one sequence, so one row.
        let token = sampler.sample(step.row(0), known(engine, id))?;
        first_token_at.get_or_insert_with(Instant::now);
        generated.push(token);
        let has_room = known(engine, id).len() < engine.n_ctx();
        if has_room {
            engine.push(id, token)?;
        }
        if request.tokenizer.is_eog(token) && !request.ignores_eog {
            break Finish::Eos;
        }
        if let Some(stop) = text.push(token, show)? {
            break Finish::Stop(stop);
        }
        if interrupt::is_requested() {
            break Finish::Cancelled;
        }
        if request.n_predict == Some(generated.len()) {
            break Finish::Length;
        }
        if known(engine, id).len() == engine.n_ctx() {
            let make_room = request.make_room.as_mut();
            is_context_full = !make_room.map_or(Ok(false), |make_room| make_room(engine, &generated))?;
            if is_context_full {
                break Finish::Length;
            }
        }
    };
    text.finish(&finish, show)?;

    let n_tokens = generated.len();
    let first_token_at = first_token_at.unwrap_or_else(Instant::now);
    Ok(Outcome {
        is_context_full,
        text: text.shown,
        n_prompt,
        prompt: first_token_at - started,
        n_generated: n_tokens - usize::from(finish == Finish::Eos),
        n_decoded: n_tokens.saturating_sub(1),
        generate: first_token_at.elapsed(),
        finish,
    })
}

/// Computes what a sequence lacks, at most `max_tokens` tokens at a time, and returns the step that gave the
/// logits after its last token. `None` if Ctrl-C came first. A terminal shows how far it is.
pub fn next_logits(engine: &mut Engine, id: SequenceId, max_tokens: usize) -> Result<Option<Step>> {
    let n_tokens = n_missing(engine, id);
    let bar = PromptBar::new(n_tokens);
    loop {
        let step = match session::step(engine, Logits::Last, max_tokens) {
            Err(e) if e.exit == Exit::Interrupted => return Ok(None),
            step => step?,
        };
        bar.show(n_tokens - n_missing(engine, id));
        if step.rows.iter().any(|row| row.id == id) {
            return Ok(Some(step));
        }
        if step.n_tokens == 0 {
            return Err(Error::new(
                Exit::Failure,
                "the KV cache has no room for the sequence: raise the context size (-c)",
            ));
        }
        if interrupt::is_requested() {
            return Ok(None);
        }
    }
}

fn n_missing(engine: &Engine, id: SequenceId) -> usize {
    engine.sequence(id).map_or(0, |seq| seq.n_missing())
}

fn known(engine: &Engine, id: SequenceId) -> &[TokenId] {
    engine.sequence(id).map_or(&[], |seq| seq.tokens())
}

/// Tokens on their way to text that may be shown.
pub struct Text<'t> {
    decoder: Decoder<&'t Tokenizer>,
    filter: StopFilter,
    shown: String,
}

impl<'t> Text<'t> {
    /// No text yet.
    pub fn new(request: &Request<'t>) -> Result<Text<'t>> {
        let decoder = request.tokenizer.decoder(false);
        let decoder = if request.continues { decoder.continuing() } else { decoder };
        Ok(Text { decoder, filter: StopFilter::new(request.stops.clone())?, shown: String::new() })
    }

    /// Shows what a token adds; the stop string if there is one in it.
    pub fn push(
        &mut self,
        token: TokenId,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Option<String>> {
        let piece = self.decoder.push(token)?;
        self.push_piece(&piece, show)
    }

    fn push_piece(
        &mut self,
        piece: &str,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Option<String>> {
        let streamed = self.filter.push(piece);
        self.show(&streamed.text, show)?;
        Ok(streamed.stop)
    }

    /// Shows what was held back, unless a stop string came.
    pub fn finish(&mut self, finish: &Finish, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        if matches!(finish, Finish::Stop(_)) {
            return Ok(());
        }
        let rest = self.decoder.flush();
        if self.push_piece(&rest, show)?.is_none() {
            let held = self.filter.finish();
            self.show(&held, show)?;
        }
        Ok(())
    }

    fn show(&mut self, text: &str, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.shown.push_str(text);
        show(text)
    }
}
