//! The conversation: messages, the sequence that holds them, and how a turn is added to both.

use crate::args::SamplingArgs;
use crate::clock;
use crate::cmd::run::{check_fits, render_options};
use crate::error::{Error, Result};
use crate::generate::{Outcome, Request, generate};
use crate::interrupt;
use crate::sampling;
use llmrt_engine::{Engine, Finish, Sampler, SequenceId};
use llmrt_tokenizer::{ChatTemplate, Limits, Message, Prompt, Tokenizer};

/// What was said, and the model's memory of it.
pub struct Conversation<'m> {
    tokenizer: &'m Tokenizer,
    template: &'m ChatTemplate,
    messages: Vec<Message>,
    flags: SamplingArgs,
    sampler: Option<Sampler>,
    known: Option<Known>,
}

/// What the model has seen.
struct Known {
    id: SequenceId,
    /// The text of its tokens, if they are exactly what the template makes of the messages so far.
    text: Option<String>,
}

impl<'m> Conversation<'m> {
    /// Nothing is said yet.
    pub fn new(
        tokenizer: &'m Tokenizer,
        template: &'m ChatTemplate,
        system: Option<String>,
        flags: SamplingArgs,
    ) -> Conversation<'m> {
        let messages = system.into_iter().map(|text| Message::new("system", text)).collect();
        Conversation { tokenizer, template, messages, flags, sampler: None, known: None }
    }

    /// Makes the sampler anew from the flags.
    pub fn reseed(&mut self, engine: &Engine) -> Result<()> {
        let (sampler, _) = sampling::sampler(&self.flags, engine.model().config.n_vocab)?;
        self.sampler = Some(sampler);
        Ok(())
    }

    /// The person says `text`, the model answers. On an error nothing was said.
    pub fn turn(
        &mut self,
        engine: &mut Engine,
        text: String,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let n_before = self.n_tokens(engine);
        self.messages.push(Message::new("user", text));
        let outcome = self.answer(engine, n_predict, show);
        match &outcome {
            Ok(outcome) => self.messages.push(Message::new("assistant", &outcome.text)),
            Err(_) => {
                self.messages.pop();
                self.unsay(engine, n_before);
            }
        }
        outcome
    }

    /// Tokens of the sequence.
    fn n_tokens(&self, engine: &Engine) -> usize {
        let sequence = self.known.as_ref().and_then(|known| engine.sequence(known.id));
        sequence.map_or(0, |seq| seq.tokens().len())
    }

    /// Takes what a turn that failed has appended off a sequence that the next turn would go on with.
    fn unsay(&mut self, engine: &mut Engine, n_before: usize) {
        if let Some(Known { id, text: Some(_) }) = self.known
            && engine.truncate(id, n_before).is_err()
        {
            self.known = None; // the engine has ended it
        }
    }

    fn answer(
        &mut self,
        engine: &mut Engine,
        n_predict: Option<usize>,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let now = clock::now();
        let options = render_options(self.tokenizer, &now);
        let limits = interrupt::limits(engine.n_ctx());
        let prompt = self.template.render_prompt(&self.messages, &options, self.tokenizer, limits)?;
        let id = self.tell(engine, &prompt, limits)?;
        let Some(sampler) = &mut self.sampler else { return Err(Error::usage("the sampler is not set up")) };
        let stops = self.flags.stop.clone();
        let request = Request { tokenizer: self.tokenizer, n_predict, stops, continues: false };
        let outcome = generate(engine, id, sampler, request, show)?;

        // Only an answer that ended by itself has the tokens that the template will write for it.
        let last = engine.sequence(id).and_then(|seq| seq.tokens().last()).copied();
        let end =
            last.filter(|_| outcome.finish == Finish::Eos).and_then(|token| self.tokenizer.piece(token));
        self.known =
            Some(Known { id, text: end.map(|end| format!("{}{}{end}", prompt.text(), outcome.text)) });
        Ok(outcome)
    }

    /// Makes the model's sequence hold `prompt`: goes on with what it has seen if that is how the prompt begins.
    fn tell(&mut self, engine: &mut Engine, prompt: &Prompt, limits: Limits) -> Result<SequenceId> {
        let n_ctx = engine.n_ctx();
        if let Some(Known { id, text: Some(text) }) = &self.known
            && let Some(rest) = prompt.strip_prefix(text)
        {
            let (id, rest) = (*id, self.tokenizer.encode_rest(&rest, limits)?);
            let n_known = engine.sequence(id).map_or(0, |seq| seq.tokens().len());
            full(check_fits(n_known + rest.len(), n_ctx, None))?;
            engine.push_prompt(id, &rest)?;
            return Ok(id);
        }
        let tokens = self.tokenizer.encode_prompt(prompt, limits)?;
        full(check_fits(tokens.len(), n_ctx, None))?;
        self.forget(engine)?;
        let id = engine.add(tokens)?;
        self.known = Some(Known { id, text: None });
        Ok(id)
    }

    /// Forgets all but the system message.
    pub fn clear(&mut self, engine: &mut Engine) -> Result<()> {
        self.messages.retain(|message| message.role == "system");
        self.forget(engine)
    }

    /// Begins anew with this system message; an empty one is none.
    pub fn set_system(&mut self, text: String, engine: &mut Engine) -> Result<()> {
        self.messages.clear();
        if !text.is_empty() {
            self.messages.push(Message::new("system", text));
        }
        self.forget(engine)
    }

    fn forget(&mut self, engine: &mut Engine) -> Result<()> {
        match self.known.take() {
            Some(known) if engine.sequence(known.id).is_some() => Ok(engine.remove(known.id)?),
            _ => Ok(()),
        }
    }

    /// Sets a sampling flag; one that does not make sense changes nothing.
    pub fn set(&mut self, name: &str, value: &str, engine: &Engine) -> Result<()> {
        let before = self.flags.clone();
        let set = set_flag(&mut self.flags, name, value).and_then(|()| self.reseed(engine));
        if set.is_err() {
            self.flags = before;
        }
        set
    }

    /// The flags and their values.
    pub fn settings(&self) -> String {
        let Ok(p) = sampling::params(&self.flags) else { return String::new() };
        let seed = self.flags.seed.map_or("from the clock".to_string(), |seed| seed.to_string());
        format!(
            "temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, seed {seed}",
            p.temperature, p.top_k, p.top_p, p.min_p, p.repeat_penalty
        )
    }
}

fn set_flag(flags: &mut SamplingArgs, name: &str, value: &str) -> Result<()> {
    fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<Option<T>> {
        let parsed =
            value.parse().map_err(|_| Error::usage(format!("/set {name} {value}: expected a number")))?;
        Ok(Some(parsed))
    }
    match name {
        "temp" => flags.temp = number(name, value)?,
        "top-k" => flags.top_k = number(name, value)?,
        "top-p" => flags.top_p = number(name, value)?,
        "min-p" => flags.min_p = number(name, value)?,
        "repeat-penalty" => flags.repeat_penalty = number(name, value)?,
        "seed" => flags.seed = number(name, value)?,
        _ => {
            return Err(Error::usage(format!(
                "/set {name}: expected temp, top-k, top-p, min-p, repeat-penalty or seed"
            )));
        }
    }
    Ok(())
}

/// The remedy in a chat is another one than on the command line.
fn full(fits: Result<()>) -> Result<()> {
    fits.map_err(|e| Error { message: format!("{}; /clear begins anew", e.message), ..e })
}

#[cfg(test)]
mod tests;
