//! The conversation: messages, and how a turn becomes a request. The prefix cache has the keys and values of the turns before.

mod turns;

mod settings;

mod file;

use crate::args::SamplingArgs;
use crate::clock;
use crate::cmd::run::check_fits;
use crate::error::{Error, Exit, Result};
use crate::generate::{Outcome, generate};
use crate::interrupt;
use crate::output::{n_things, note};
use crate::prompt::{EMPTY_TEMPLATE, check_system, render_options};
use crate::sampling;
use crate::session::Core;
use crate::templates::Template;
use llmrt_engine::{Decoding, Request, RequestId, TokenId};
use llmrt_tokenizer::{Message, RenderOptions, Tokenizer};
use turns::Turns;

/// Messages of the user and the model.
pub struct Conversation<'m> {
    tokenizer: &'m Tokenizer,
    template: Template,
    turns: Turns,
    /// Whether the oldest turns are dropped where the context is too small for all.
    shifts: bool,
    flags: SamplingArgs,
    /// The seed of the first answer; each later one has the next.
    seed: u64,
    n_answers: u64,
    /// The tokens of the last turn: its prompt and its answer.
    tokens: Vec<TokenId>,
}

impl<'m> Conversation<'m> {
    /// A conversation without messages but the system message. Flags that make no sense are an error.
    pub fn new(
        tokenizer: &'m Tokenizer,
        template: Template,
        system: Option<String>,
        flags: SamplingArgs,
        shifts: bool,
    ) -> Result<Conversation<'m>> {
        let (turns, tokens) = (Turns::new(system), Vec::new());
        let mut talk =
            Conversation { tokenizer, template, turns, shifts, flags, seed: 0, n_answers: 0, tokens };
        talk.reseed()?;
        Ok(talk)
    }

    /// Answers `text`. On an error the conversation is as it was before.
    pub fn turn(
        &mut self,
        core: &mut Core,
        text: String,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        self.turns.push(Message::new("user", text));
        let outcome = self.answer(core, n_predict, show);
        if outcome.is_err() {
            self.turns.pop();
        }
        outcome
    }

    /// Answers the last message again, with another seed. On an error the answer before stays.
    pub fn regenerate(
        &mut self,
        core: &mut Core,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let Some(before) = self.turns.pop_answer() else {
            return Err(Error::usage("/regen: there is no answer yet"));
        };
        self.note_seed();
        let outcome = self.answer(core, n_predict, show);
        if outcome.is_err() {
            self.turns.push(before);
        }
        outcome
    }

    /// Generates the answer to the last message and appends it.
    fn answer(
        &mut self,
        core: &mut Core,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let n_dropped = self.turns.n_dropped();
        let answered = self.generate(core, n_predict, show);
        match &answered {
            Ok((opening, outcome)) => {
                self.n_answers += 1;
                self.turns.push(Message::new("assistant", opening.clone() + &outcome.text))
            }
            Err(_) => self.turns.set_dropped(n_dropped),
        }
        answered.map(|(_, outcome)| outcome)
    }

    /// The part of the answer that the template writes, and what the model adds to it.
    fn generate(
        &mut self,
        core: &mut Core,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<(String, Outcome)> {
        let (prompt, opening) = self.fit(core.n_ctx(), &[], n_predict)?;
        let request = Request {
            decoding: self.decoding()?,
            max_tokens: n_predict,
            stop: self.flags.stop.clone(),
            ignore_eos: self.flags.ignore_eos,
            continues: !opening.is_empty(),
            context_shift: true,
            ..Request::greedy(prompt.clone())
        };
        let opening = opening.trim_start().to_string();
        // With the first text, since the progress of the prompt uses the line.
        let mut unshown = Some(opening.as_str());
        let mut show_all = |text: &str| {
            unshown.take().map_or(Ok(()), &mut *show)?;
            show(text)
        };
        let mut tokens = prompt;
        let mut shift = |core: &mut Core, id: RequestId, generated: &[TokenId]| {
            let Some(shortened) = self.make_room(core.n_ctx(), generated, n_predict)? else {
                return Ok(false);
            };
            tokens = shortened;
            core.replace(id, &[&tokens, generated].concat())?;
            Ok(true)
        };
        let outcome = generate(core, request, Some(&mut shift), &mut show_all)?;
        show_all("")?;
        tokens.extend(&outcome.tokens);
        self.tokens = tokens;
        Ok((opening, outcome))
    }

    /// The prompt that leaves room for an answer after the tokens `generated` of it, and the answer's opening. Drops the
    /// oldest turns until there is room for a quarter of the context, or for the `n_predict` tokens that it will have at
    /// most; the last message always stays.
    fn fit(
        &mut self,
        n_ctx: usize,
        generated: &[TokenId],
        n_predict: Option<usize>,
    ) -> Result<(Vec<TokenId>, String)> {
        let n_left = n_predict.map_or(usize::MAX, |n| n.saturating_sub(generated.len()));
        let n_reserved = (n_ctx / 4).min(n_left).max(1);
        let (mut tokens, mut opening) = self.render(n_ctx)?;
        let (n_all, mut n_turns, mut n_sentences) = (tokens.len(), 0, 0);
        while tokens.len() + generated.len() + n_reserved > n_ctx && self.shifts {
            match self.drop_oldest() {
                Some(Dropped::Turn) => n_turns += 1,
                Some(Dropped::Sentence) => n_sentences += 1,
                None => break,
            }
            (tokens, opening) = self.render(n_ctx)?;
        }
        check_fits(tokens.len() + generated.len(), n_ctx, None).map_err(full)?;
        let oldest = [(n_turns, "turn"), (n_sentences, "sentence")].into_iter().filter(|(n, _)| *n > 0);
        let oldest: Vec<_> = oldest.map(|(n, what)| n_things(n, what)).collect();
        if tokens.len() < n_all {
            note(format_args!(
                "{}(context shift: dropped the oldest {}, {}, to make room in {n_ctx})",
                if generated.is_empty() { "" } else { "\n" },
                oldest.join(" and "),
                n_things(n_all.saturating_sub(tokens.len()), "token"),
            ));
        }
        Ok((tokens, opening))
    }

    /// Drops the oldest turn. A template whose answers continue the one before drops that one's first sentence instead.
    fn drop_oldest(&mut self) -> Option<Dropped> {
        if self.template.shows_opening && self.turns.has_one_answer() {
            return self.turns.cut_answer().then_some(Dropped::Sentence);
        }
        self.turns.drop_oldest().then_some(Dropped::Turn)
    }

    /// Drops the oldest turns while an answer is generated: the prompt that is left, `None` where there is none to drop.
    fn make_room(
        &mut self,
        n_ctx: usize,
        generated: &[TokenId],
        n_predict: Option<usize>,
    ) -> Result<Option<Vec<TokenId>>> {
        if !self.shifts || !self.turns.has_oldest() {
            return Ok(None);
        }
        let n_dropped = self.turns.n_dropped();
        let fitted = self.fit(n_ctx, generated, n_predict);
        if fitted.is_err() {
            self.turns.set_dropped(n_dropped);
        }
        Ok(fitted.ok().map(|(tokens, _)| tokens))
    }

    /// The prompt of the conversation, and what of it is the opening of the answer.
    fn render(&self, n_ctx: usize) -> Result<(Vec<TokenId>, String)> {
        let now = clock::now();
        let options = render_options(self.tokenizer, &now);
        let (template, messages) = (&self.template.jinja, self.turns.kept());
        let limits = interrupt::limits(n_ctx);
        let prompt = template.render_prompt(&messages, &options, self.tokenizer, limits)?;
        let mut opening = String::new();
        if self.template.shows_opening {
            let bare = RenderOptions { add_generation_prompt: false, ..options };
            let bare = template.render_prompt(&messages, &bare, self.tokenizer, limits)?;
            opening.push_str(prompt.text().strip_prefix(bare.text()).unwrap_or_default());
        }
        let tokens = self.tokenizer.encode_prompt(&prompt, limits)?;
        if tokens.is_empty() {
            return Err(Error::new(Exit::File, EMPTY_TEMPLATE));
        }
        Ok((tokens, opening))
    }

    /// Forgets all but the system message.
    pub fn clear(&mut self) {
        self.turns.clear();
        self.tokens.clear();
    }

    /// Forgets all and starts over with this system message; an empty one is none.
    pub fn set_system(&mut self, text: String) {
        self.turns = Turns::new(Some(text).filter(|text| !text.is_empty()));
        self.tokens.clear();
    }

    /// Notes that the system message has no place of its own in the template.
    pub fn check_system(&self) {
        check_system(&self.template.jinja, self.turns.system());
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.turns.system()
    }
}

/// What a context shift drops.
enum Dropped {
    Turn,
    Sentence,
}

/// The remedy in a chat is another one than on the command line.
fn full(e: Error) -> Error {
    Error { message: format!("{}; /clear starts over", e.message), ..e }
}

#[cfg(test)]
mod tests;
