//! How fast a request was. The caller measures; nothing here reads a clock.

use std::fmt;
use std::time::Duration;

/// Counts and durations of one request.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Timings {
    /// Opening the model.
    pub load: Duration,
    /// Prompt tokens that went through the model.
    pub n_prompt: usize,
    /// Time for them, up to the first generated token.
    pub prompt: Duration,
    /// Tokens generated.
    pub n_generated: usize,
    /// Steps of one token each: the first token came with the prompt's last step.
    pub n_decoded: usize,
    /// Time for these steps.
    pub generate: Duration,
}

impl Timings {
    /// Prompt tokens per second; `None` when nothing was measured.
    pub fn prompt_tok_s(&self) -> Option<f64> {
        tok_s(self.n_prompt, self.prompt)
    }

    /// Steps of one token per second; `None` when nothing was measured.
    pub fn generate_tok_s(&self) -> Option<f64> {
        tok_s(self.n_decoded, self.generate)
    }
}

/// `load 0.12 s, prompt 12 tokens at 345.6 tok/s, generated 128 tokens at 45.6 tok/s`
impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prompt = speed(self.n_prompt, self.prompt_tok_s());
        let generated = speed(self.n_generated, self.generate_tok_s());
        write!(f, "load {:.2} s, prompt {prompt}, generated {generated}", self.load.as_secs_f64())
    }
}

fn speed(n_tokens: usize, tok_s: Option<f64>) -> String {
    let unit = if n_tokens == 1 { "token" } else { "tokens" };
    match tok_s {
        Some(tok_s) => format!("{n_tokens} {unit} at {tok_s:.1} tok/s"),
        None => format!("{n_tokens} {unit}"),
    }
}

fn tok_s(n_tokens: usize, time: Duration) -> Option<f64> {
    (n_tokens > 0 && !time.is_zero()).then(|| n_tokens as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_read_as_one_line() {
        let timings = Timings {
            load: Duration::from_millis(123),
            n_prompt: 12,
            prompt: Duration::from_millis(48),
            n_generated: 129,
            n_decoded: 128,
            generate: Duration::from_secs(2),
        };
        let line = "load 0.12 s, prompt 12 tokens at 250.0 tok/s, generated 129 tokens at 64.0 tok/s";
        assert_eq!(timings.to_string(), line);
    }

    #[test]
    fn what_was_not_measured_has_no_speed() {
        let timings = Timings { n_prompt: 1, ..Timings::default() };
        assert_eq!(timings.to_string(), "load 0.00 s, prompt 1 token, generated 0 tokens");
        assert_eq!((timings.prompt_tok_s(), timings.generate_tok_s()), (None, None));
    }
}
