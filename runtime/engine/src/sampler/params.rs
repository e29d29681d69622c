//! The sampler's parameters and their ranges.

use crate::error::{Error, Result};
use crate::sequence::TokenId;

/// The numbers of the chain. The defaults are the ones that users of llama.cpp and Ollama expect.
#[derive(Clone, PartialEq, Debug)]
pub struct SamplingParams {
    /// Logits are divided by it; 0 or less: the largest wins. Default 0.8.
    pub temperature: f32,
    /// Whose rules hold where programs differ. Default: llama.cpp's.
    pub rules: SamplingRules,
    /// Only the `top_k` largest take part; 0 or less: all. Default 40.
    pub top_k: i32,
    /// Only the fewest that together have this probability take part; 1: all. Default 0.95.
    pub top_p: f32,
    /// Only those at least this times as probable as the most probable take part; 0: all. Default 0.05.
    pub min_p: f32,
    /// Only the most typical that together have this probability take part; 1: all. Default 1.
    pub typical_p: f32,
    /// Logits of recent tokens are divided by it, negative ones multiplied; 1: no effect. Default 1.
    pub repeat_penalty: f32,
    /// Subtracted from a token's logit for each time it occurred recently, of [`SamplingRules::Vllm`] for each time it was
    /// generated. Default 0.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of every such token. Default 0.
    pub presence_penalty: f32,
    /// How many tokens are recent; 0: none, -1: all. Default 64.
    pub repeat_last_n: i32,
    /// Added to the logits of these tokens; -inf forbids one. Default none.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Makes the text repeatable; `None`: the caller picks a seed.
    pub seed: Option<u64>,
}

/// Whose rules hold where programs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SamplingRules {
    /// The temperature acts after the cuts: it changes how bold the draw is, not which tokens take part. All penalties
    /// count the prompt's tokens too.
    #[default]
    LlamaCpp,
    /// The temperature acts before the cuts; below 1e-5 the largest logit wins. `frequency_penalty` and `presence_penalty`
    /// count generated tokens only, as in OpenAI's API; `repeat_penalty` counts the prompt's too.
    Vllm,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            rules: SamplingRules::default(),
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last_n: 64,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplingParams {
    /// The largest logit wins.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether the largest logit wins and no random number is drawn.
    pub(super) fn is_greedy(&self) -> bool {
        let greedy_below = match self.rules {
            SamplingRules::LlamaCpp => f32::MIN_POSITIVE,
            SamplingRules::Vllm => 1e-5,
        };
        self.temperature < greedy_below
    }

    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<()> {
        let numbers = [
            (
                "temperature",
                self.temperature,
                f32::MIN..=f32::MAX,
                "a number; 0 or less picks the largest logit",
            ),
            ("top_p", self.top_p, 0.0..=1.0, "0 to 1; 1 keeps every token"),
            ("min_p", self.min_p, 0.0..=1.0, "0 to 1; 0 keeps every token"),
            ("typical_p", self.typical_p, 0.0..=1.0, "0 to 1; 1 keeps every token"),
            ("repeat_penalty", self.repeat_penalty, 0.01..=100.0, "0.01 to 100; 1 has no effect"),
            ("frequency_penalty", self.frequency_penalty, -100.0..=100.0, "-100 to 100; 0 has no effect"),
            ("presence_penalty", self.presence_penalty, -100.0..=100.0, "-100 to 100; 0 has no effect"),
        ];
        for (name, found, range, expected) in numbers {
            if !range.contains(&found) {
                return Err(Error::BadParam { name, found: found.into(), expected });
            }
        }
        if self.repeat_last_n < -1 {
            let expected = "a number of tokens, or -1 for all";
            return Err(Error::BadParam {
                name: "repeat_last_n",
                found: self.repeat_last_n.into(),
                expected,
            });
        }
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan() || *bias == f32::INFINITY) {
            Some(&(token, found)) => Err(Error::BadBias { token, found }),
            None => Ok(()),
        }
    }

    /// How many of the largest logits decide the next token; `None`: all of them. Penalties and biases change the order,
    /// and without top-k the cuts weigh each token against the whole vocabulary.
    pub fn required_top_k(&self) -> Option<usize> {
        if !self.logit_bias.is_empty() || self.penalises() {
            return None;
        }
        self.n_kept()
    }

    /// How many of the largest logits the cuts keep, after penalties and biases; `None`: any number.
    pub(crate) fn n_kept(&self) -> Option<usize> {
        if self.temperature <= 0.0 { Some(1) } else { usize::try_from(self.top_k).ok().filter(|&k| k > 0) }
    }

    /// Whether a token that occurred may lose or gain.
    pub(super) fn penalises(&self) -> bool {
        let is_neutral =
            self.repeat_penalty == 1.0 && self.frequency_penalty == 0.0 && self.presence_penalty == 0.0;
        !is_neutral && self.repeat_last_n != 0
    }

    /// The end of `history` that the penalties look at.
    pub(super) fn penalty_window<'a>(&self, history: &'a [TokenId]) -> &'a [TokenId] {
        let n = usize::try_from(self.repeat_last_n).unwrap_or(history.len());
        &history[history.len().saturating_sub(n)..]
    }

    /// Of such a window those that frequency and presence count; the last `n_generated` of the history were generated.
    pub(super) fn counted<'a>(&self, window: &'a [TokenId], n_generated: usize) -> &'a [TokenId] {
        match self.rules {
            SamplingRules::LlamaCpp => window,
            SamplingRules::Vllm => &window[window.len().saturating_sub(n_generated)..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted() {
        assert_eq!(SamplingParams::default().check(), Ok(()));
        assert_eq!(SamplingParams::greedy().check(), Ok(()));
    }

    #[test]
    fn a_bad_number_is_named_with_its_range() {
        refused(|p| p.top_p = 1.5, "top_p is 1.5: expected 0 to 1; 1 keeps every token");
        refused(|p| p.min_p = -0.5, "min_p is -0.5: expected 0 to 1; 0 keeps every token");
        refused(|p| p.typical_p = f32::NAN, "typical_p is NaN: expected 0 to 1; 1 keeps every token");
        refused(
            |p| p.temperature = f32::INFINITY,
            "temperature is inf: expected a number; 0 or less picks the largest logit",
        );
        refused(|p| p.repeat_penalty = 0.0, "repeat_penalty is 0: expected 0.01 to 100; 1 has no effect");
        refused(
            |p| p.frequency_penalty = 1e9,
            "frequency_penalty is 1000000000: expected -100 to 100; 0 has no effect",
        );
        refused(
            |p| p.presence_penalty = -1e9,
            "presence_penalty is -1000000000: expected -100 to 100; 0 has no effect",
        );
        refused(|p| p.repeat_last_n = -2, "repeat_last_n is -2: expected a number of tokens, or -1 for all");
        refused(
            |p| p.logit_bias = vec![(5, f32::INFINITY)],
            "logit bias of token 5 is inf: expected a number, or -inf to forbid the token",
        );
    }

    #[test]
    fn what_changes_logits_or_weighs_them_all_needs_them_all() {
        let needs = |change: fn(&mut SamplingParams)| {
            let mut params = SamplingParams::default();
            change(&mut params);
            params.required_top_k()
        };
        assert_eq!(needs(|_| ()), Some(40));
        assert_eq!(needs(|p| (p.top_p, p.min_p, p.typical_p) = (0.5, 0.5, 0.5)), Some(40));
        assert_eq!(needs(|p| p.temperature = 0.0), Some(1));
        assert_eq!(needs(|p| (p.temperature, p.top_k) = (-1.0, 0)), Some(1));
        assert_eq!(needs(|p| p.top_k = 0), None);
        assert_eq!(needs(|p| p.top_k = -1), None);
        assert_eq!(needs(|p| p.repeat_penalty = 1.1), None);
        assert_eq!(needs(|p| p.frequency_penalty = 0.1), None);
        assert_eq!(needs(|p| p.presence_penalty = -0.1), None);
        assert_eq!(needs(|p| (p.repeat_penalty, p.repeat_last_n) = (1.1, 0)), Some(40));
        assert_eq!(needs(|p| (p.temperature, p.logit_bias) = (0.0, vec![(3, 1.0)])), None);
    }

    #[test]
    fn the_window_is_the_end_of_the_history() {
        let window =
            |n| SamplingParams { repeat_last_n: n, ..Default::default() }.penalty_window(&[1, 2, 3]).to_vec();
        assert_eq!(
            [window(0), window(2), window(9), window(-1)],
            [vec![], vec![2, 3], vec![1, 2, 3], vec![1, 2, 3]]
        );
    }

    fn refused(change: impl Fn(&mut SamplingParams), message: &str) {
        let mut params = SamplingParams::default();
        change(&mut params);
        assert_eq!(params.check().unwrap_err().to_string(), message);
    }
}
