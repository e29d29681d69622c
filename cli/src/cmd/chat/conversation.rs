//! The conversation: messages, the sequence that holds their keys and values, and how a turn is added to both.

mod turns;

mod settings;

mod file;

use crate::args::SamplingArgs;
use crate::clock;
use crate::cmd::run::check_fits;
use crate::error::{Error, Exit, Result};
use crate::generate::{Outcome, Request, generate};
use crate::interrupt;
use crate::output::{n_things, note};
use crate::prompt::{EMPTY_TEMPLATE, SYSTEM_LEFT_OUT, leaves_system_out, render_options};
use crate::sampling;
use crate::templates::Template;
use crate::values::Seed;
use llmrt_engine::{Engine, Sampler, SequenceId, TokenId};
use llmrt_tokenizer::{Message, RenderOptions, Tokenizer};
use turns::Turns;

/// Messages of the user and the model, and the sequence that caches them.
pub struct Conversation<'m> {
    tokenizer: &'m Tokenizer,
    template: Template,
    turns: Turns,
    /// Whether the oldest turns are dropped where the context is too small for all.
    shifts: bool,
    flags: SamplingArgs,
    sampler: Option<Sampler>,
    /// A cache: whatever tokens it has in common with the next prompt are not computed again.
    sequence: Option<SequenceId>,
}

impl<'m> Conversation<'m> {
    /// A conversation without messages but the system message.
    pub fn new(
        tokenizer: &'m Tokenizer,
        template: Template,
        system: Option<String>,
        flags: SamplingArgs,
        shifts: bool,
    ) -> Conversation<'m> {
        let turns = Turns::new(system);
        Conversation { tokenizer, template, turns, shifts, flags, sampler: None, sequence: None }
    }

    /// Answers `text`. On an error the conversation is as it was before.
    pub fn turn(
        &mut self,
        engine: &mut Engine,
        text: String,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        self.turns.push(Message::new("user", text));
        let outcome = self.answer(engine, n_predict, show);
        if outcome.is_err() {
            self.turns.pop();
        }
        outcome
    }

    /// Answers the last message again, with another seed. On an error the answer before stays.
    pub fn regenerate(
        &mut self,
        engine: &mut Engine,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let Some(before) = self.turns.pop_answer() else {
            return Err(Error::usage("/regen: there is no answer yet"));
        };
        let outcome = self.change_seed(engine).and_then(|()| self.answer(engine, n_predict, show));
        if outcome.is_err() {
            self.turns.push(before);
        }
        outcome
    }

    /// Generates the answer to the last message and appends it.
    fn answer(
        &mut self,
        engine: &mut Engine,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let (n_dropped, n_tokens) = (self.turns.n_dropped(), self.n_tokens(engine));
        let Some(mut sampler) = self.sampler.take() else {
            return Err(Error::usage("the sampler is not set up"));
        };
        let outcome = self.answer_with(&mut sampler, engine, n_predict, show);
        self.sampler = Some(sampler);
        match &outcome {
            Ok((opening, outcome)) => {
                self.turns.push(Message::new("assistant", opening.clone() + &outcome.text))
            }
            Err(_) => {
                self.turns.set_dropped(n_dropped);
                self.rewind(engine, n_tokens);
            }
        }
        outcome.map(|(_, outcome)| outcome)
    }

    /// The part of the answer that the template writes, and what the model adds to it.
    fn answer_with(
        &mut self,
        sampler: &mut Sampler,
        engine: &mut Engine,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<(String, Outcome)> {
        let (tokens, opening) = self.fit(engine.n_ctx(), &[], n_predict)?;
        let id = self.load(engine, tokens)?;
        let tokenizer = self.tokenizer;
        let (stops, ignores_eog) = (self.flags.stop.clone(), self.flags.ignore_eos);
        let continues = !opening.is_empty();
        let opening = opening.trim_start().to_string();
        // With the first text, since the progress of the prompt uses the line.
        let mut unshown = Some(opening.as_str());
        let mut show_all = |text: &str| {
            unshown.take().map_or(Ok(()), &mut *show)?;
            show(text)
        };
        let mut make_room =
            |engine: &mut Engine, generated: &[TokenId]| self.make_room(engine, generated, n_predict);
        let request =
            Request { tokenizer, n_predict, stops, continues, ignores_eog, make_room: Some(&mut make_room) };
        let outcome = generate(engine, id, sampler, request, &mut show_all)?;
        show_all("")?;
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

    /// Drops the oldest turns while an answer is generated; `false` where there is none left.
    fn make_room(
        &mut self,
        engine: &mut Engine,
        generated: &[TokenId],
        n_predict: Option<usize>,
    ) -> Result<bool> {
        let n_ctx = engine.n_ctx();
        if !self.shifts || !self.turns.has_oldest() {
            return Ok(false);
        }
        let n_dropped = self.turns.n_dropped();
        let Ok((mut tokens, _)) = self.fit(n_ctx, generated, n_predict) else {
            self.turns.set_dropped(n_dropped);
            return Ok(false);
        };
        tokens.extend(generated);
        self.load(engine, tokens)?;
        Ok(true)
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

    /// Makes the sequence hold `tokens`: what it has in common with them stays, but the last one is computed in any
    /// case, as its logits are needed.
    fn load(&mut self, engine: &mut Engine, tokens: Vec<TokenId>) -> Result<SequenceId> {
        let cached = self.sequence.and_then(|id| Some((id, engine.sequence(id)?.tokens())));
        let n_common = |cached: &[TokenId]| cached.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        let kept = cached.map(|(id, cached)| (id, n_common(cached).min(tokens.len() - 1)));
        if let Some((id, n_kept @ 1..)) = kept {
            engine.truncate(id, n_kept)?;
            engine.push_prompt(id, &tokens[n_kept..])?;
            return Ok(id);
        }
        self.forget(engine)?;
        let id = engine.add(tokens)?;
        self.sequence = Some(id);
        Ok(id)
    }

    /// Tokens of the sequence.
    fn n_tokens(&self, engine: &Engine) -> usize {
        let sequence = self.sequence.and_then(|id| engine.sequence(id));
        sequence.map_or(0, |seq| seq.tokens().len())
    }

    /// Takes off the sequence what a turn that failed has appended.
    fn rewind(&mut self, engine: &mut Engine, n_tokens: usize) {
        if let Some(id) = self.sequence
            && (n_tokens == 0 || engine.truncate(id, n_tokens).is_err())
        {
            let _ = engine.remove(id);
            self.sequence = None;
        }
    }

    /// Forgets all but the system message.
    pub fn clear(&mut self, engine: &mut Engine) -> Result<()> {
        self.turns.clear();
        self.forget(engine)
    }

    /// Forgets all and starts over with this system message; an empty one is none.
    pub fn set_system(&mut self, text: String, engine: &mut Engine) -> Result<()> {
        self.turns = Turns::new(Some(text).filter(|text| !text.is_empty()));
        self.forget(engine)
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.turns.system()
    }

    /// Warns of a system message that the template leaves out or refuses.
    pub fn check_system(&self) {
        let Some(system) = self.turns.system() else { return };
        match leaves_system_out(self.tokenizer, &self.template.jinja, system) {
            Ok(true) => note(SYSTEM_LEFT_OUT),
            Ok(false) => {}
            Err(e) => note(format_args!("warning: {}", e.message)),
        }
    }

    fn forget(&mut self, engine: &mut Engine) -> Result<()> {
        match self.sequence.take() {
            Some(id) if engine.sequence(id).is_some() => Ok(engine.remove(id)?),
            _ => Ok(()),
        }
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
