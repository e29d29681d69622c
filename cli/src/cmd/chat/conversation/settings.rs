//! What `/set`, `/show` and `/regen` change and show.

use super::*;
use llmrt_engine::SamplingParams;

impl Conversation<'_> {
    /// Checks the flags and takes their seed.
    pub fn reseed(&mut self) -> Result<()> {
        (_, self.seed) = self.flagged()?;
        self.n_answers = 0;
        Ok(())
    }

    /// How tokens are picked by the flags, and their seed.
    fn flagged(&self) -> Result<(Decoding, u64)> {
        sampling::decoding(&self.flags, self.tokenizer.n_tokens() as u64)
    }

    /// How the tokens of the next answer are picked.
    pub(super) fn decoding(&self) -> Result<Decoding> {
        let next = self.seed.wrapping_add(self.n_answers);
        Ok(match self.flagged()?.0 {
            Decoding::Sample { params, .. } => {
                Decoding::Sample { params: SamplingParams { seed: None, ..params }, seed: next }
            }
            decoding => decoding,
        })
    }

    /// Notes the seed of the next answer, which none before it had.
    pub(super) fn note_seed(&self) {
        match self.flags.temp {
            Some(0.0) => note("(--temp 0: the answer is the same with every seed)"),
            _ => note(format_args!("(seed {})", self.seed.wrapping_add(self.n_answers))),
        }
    }

    /// Sets a sampling flag; a value out of range changes nothing.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let before = self.flags.clone();
        let set = set_flag(&mut self.flags, name, value).and_then(|()| self.reseed());
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

    /// Template, messages, context and flags, a line each.
    pub fn summary(&self, n_ctx: usize) -> String {
        let n_tokens = self.tokens.len();
        let n_messages = self.turns.all().count();
        let dropped = match self.turns.n_dropped() {
            0 => String::new(),
            n => format!(", the oldest {n} dropped from the context"),
        };
        let system = self.turns.system().map_or("none".to_string(), shortened);
        format!(
            "template  {}\nsystem    {system}\nmessages  {n_messages}{dropped}\n\
             context   {n_tokens} of {n_ctx} tokens ({} %), {}\nsampling  {}",
            self.template.name,
            100 * n_tokens / n_ctx.max(1),
            if self.shifts { "the oldest turns are dropped when it is full" } else { "no context shift" },
            self.settings()
        )
    }
}

/// The beginning of a text, in one line.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect();
    if text.chars().nth(MAX_CHARS).is_some() { line + "…" } else { line }
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
