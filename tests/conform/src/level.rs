//! What a case is about, from "does it load" to "how fast is it".

use std::fmt;

/// A level of conformance; a vendor lists those that pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Loading and static checks.
    L0,
    /// Memory.
    L1,
    /// Streams and events.
    L2,
    /// Every op against its reference.
    L3,
    /// Plans.
    L4,
    /// Injected faults.
    L5,
    /// Throughput.
    L6,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Level; 7] = [Level::L0, Level::L1, Level::L2, Level::L3, Level::L4, Level::L5, Level::L6];

    /// What it is about.
    pub fn title(self) -> &'static str {
        match self {
            Level::L0 => "load and static checks",
            Level::L1 => "memory",
            Level::L2 => "streams and events",
            Level::L3 => "ops against their references",
            Level::L4 => "plan replay",
            Level::L5 => "injected faults",
            Level::L6 => "throughput",
        }
    }

    /// The levels in a text like `L3`, `L0..L3` or `L1,L4`.
    pub fn parse(text: &str) -> Result<Vec<Level>, String> {
        let mut levels = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (one(first)?, one(last.trim_start_matches('='))?);
            levels.extend(Level::ALL.into_iter().filter(|l| (first..=last).contains(l)));
        }
        levels.sort();
        levels.dedup();
        match levels.is_empty() {
            true => Err(format!("{text}: names no level; expected L0 to L6, as in L3, L0..L3 or L1,L4")),
            false => Ok(levels),
        }
    }
}

fn one(text: &str) -> Result<Level, String> {
    let found = Level::ALL.into_iter().find(|l| l.to_string().eq_ignore_ascii_case(text.trim()));
    found.ok_or_else(|| format!("{text}: expected a level from L0 to L6, as in L3, L0..L3 or L1,L4"))
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", *self as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[Level]) {
        assert_eq!(Level::parse(text).unwrap(), expected);
    }

    #[test]
    fn levels_are_named_alone_in_lists_and_in_ranges() {
        check("L3", &[Level::L3]);
        check("l5, L1", &[Level::L1, Level::L5]);
        check("L1..L3,L2", &[Level::L1, Level::L2, Level::L3]);
    }

    #[test]
    fn what_is_no_level_is_an_error() {
        assert!(Level::parse("L7").unwrap_err().contains("L0 to L6"));
        assert!(Level::parse("L3..L1").unwrap_err().contains("names no level"));
    }
}
