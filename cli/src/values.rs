//! Values of flags: what is accepted, and the message for everything else.

use llmrt_host::PoolKind;
use llmrt_host::sched::SplitMode;
use std::fmt;
use std::str::FromStr;

/// A number of tokens, threads, …
pub fn whole(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| "expected a whole number, 0 or more".into())
}

/// A whole number that may be below 0.
pub fn signed(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| "expected a whole number".into())
}

/// A number with a fraction.
pub fn number(text: &str) -> Result<f32, String> {
    text.trim().parse().map_err(|_| "expected a number, such as 0.8".into())
}

/// How many alternatives a token is listed with.
pub fn logprobs(text: &str) -> Result<usize, String> {
    text.trim().parse().ok().filter(|n| *n <= 100).ok_or_else(|| "expected a whole number, 0 to 100".into())
}

/// An option of a plugin.
pub fn option(text: &str) -> Result<(String, String), String> {
    llmrt_host::plugin::option_pair(text).ok_or_else(|| "expected KEY=VALUE".into())
}

/// How scratch memory is managed.
pub fn pool(text: &str) -> Result<PoolKind, String> {
    text.trim().parse().map_err(|expected| format!("expected {expected}"))
}

/// How devices share a model.
pub fn split(text: &str) -> Result<SplitMode, String> {
    text.trim().parse().map_err(|expected| format!("expected {expected}"))
}

/// A seed of random numbers; `None`: from the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub Option<u64>);

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Seed, String> {
        match text.trim() {
            "-1" => Ok(Seed(None)),
            digits => digits.parse().map(|seed| Seed(Some(seed))).map_err(|_| {
                format!("expected a whole number, 0 to {}, or -1 for one from the clock", u64::MAX)
            }),
        }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seed) => write!(f, "{seed}"),
            None => f.write_str("from the clock"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_below_zero_is_the_clocks() {
        assert_eq!("-1".parse(), Ok(Seed(None)));
        assert_eq!("18446744073709551615".parse(), Ok(Seed(Some(u64::MAX))));
        for wrong in ["-2", "abc", "1.5", ""] {
            assert!(wrong.parse::<Seed>().unwrap_err().contains("-1 for one from the clock"), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_number_is_answered_with_what_would_be() {
        assert_eq!(whole("a").unwrap_err(), "expected a whole number, 0 or more");
        assert_eq!(whole("-1").unwrap_err(), "expected a whole number, 0 or more");
        assert_eq!(signed("x").unwrap_err(), "expected a whole number");
        assert!(number("abc").unwrap_err().contains("expected a number"));
        assert_eq!((whole("7"), signed("-7"), number("-0.5")), (Ok(7), Ok(-7), Ok(-0.5)));
    }
}
