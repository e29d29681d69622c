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

/// What scores are compared with: any number but NaN.
pub fn score(text: &str) -> Result<f32, String> {
    let found = text.trim().parse().ok().filter(|score: &f32| !score.is_nan());
    found.ok_or_else(|| "expected a number, such as 0.1".into())
}

/// Bytes of a device; `None`: all that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub Option<u64>);

/// A number of GiB, or -1.
pub fn budget(text: &str) -> Result<Budget, String> {
    match text.trim().parse::<f64>() {
        Ok(-1.0) => Ok(Budget(None)),
        Ok(gib) if gib.is_finite() && gib >= 0.0 => Ok(Budget(Some((gib * (1u64 << 30) as f64) as u64))),
        _ => Err("expected a number of GiB, 0 or more, or -1 for the default".into()),
    }
}

/// Bytes that a step may write on average: at least 1 KiB, so that a number without a unit is no slip.
pub fn swap_size(text: &str) -> Result<u64, String> {
    size(text)?
        .checked_sub(1024)
        .map(|n| n + 1024)
        .ok_or_else(|| "expected at least 1KiB, such as 4MiB".into())
}

/// How many alternatives a token is listed with.
pub fn logprobs(text: &str) -> Result<usize, String> {
    text.trim().parse().ok().filter(|n| *n <= 100).ok_or_else(|| "expected a whole number, 0 to 100".into())
}

/// Bytes: a number with a unit of 1024s (KiB, MiB, GiB, TiB; K, M, G, T) or of 1000s (KB, MB, GB, TB), or without one.
pub fn size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size, such as 512MiB or 4GiB".to_string();
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| expected())?;
    let unit = unit.trim().to_ascii_uppercase();
    let (prefix, base) = match unit.strip_suffix("IB") {
        Some("") => return Err(expected()),
        Some(prefix) => (prefix, 1024f64),
        None if unit.len() == 1 && unit != "B" => (unit.as_str(), 1024.0),
        None => (unit.strip_suffix('B').unwrap_or(&unit), 1000.0),
    };
    let power = ["", "K", "M", "G", "T"].iter().position(|known| *known == prefix).ok_or_else(expected)?;
    Ok((number * base.powi(power as i32)) as u64)
}

/// A share of a whole.
pub fn share(text: &str) -> Result<f64, String> {
    let expected = || "expected a share above 0 and at most 1, such as 0.9".to_string();
    text.trim().parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(expected)
}

/// A probability.
pub fn probability(text: &str) -> Result<f32, String> {
    let expected = || "expected a probability from 0 to 1, such as 0.5".to_string();
    text.trim().parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or_else(expected)
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
    fn sizes_have_units_of_1024_or_1000() {
        for (text, expected) in [
            ("512", 512),
            ("512B", 512),
            ("4k", 4096),
            ("1.5 KiB", 1536),
            ("2MB", 2_000_000),
            ("3GiB", 3 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for wrong in ["", "GiB", "-1", "4 apples", "1.2.3M", "4iB", "nan"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((share("0.5"), share("1")), (Ok(0.5), Ok(1.0)));
        assert!(share("0").is_err() && share("1.1").is_err() && share("nan").is_err());
    }

    #[test]
    fn a_budget_is_in_gib_and_minus_one_is_all() {
        assert_eq!(budget("1.5"), Ok(Budget(Some(3 << 29))));
        assert_eq!(budget("-1"), Ok(Budget(None)));
        for bad in ["-2", "nan", "inf", "1GiB", ""] {
            assert!(budget(bad).unwrap_err().contains("GiB"), "{bad}");
        }
    }

    #[test]
    fn a_swap_size_is_given_with_its_unit() {
        assert_eq!((swap_size("1KiB"), swap_size("4MiB")), (Ok(1024), Ok(4 << 20)));
        assert!(swap_size("4").unwrap_err().contains("1KiB") && swap_size("x").is_err());
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
