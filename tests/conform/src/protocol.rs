//! Messages between parent and worker: one line per request, one per response.
//!
//! Question: `NUMBER \t CASE`. Answer: `llmrt-conform \t NUMBER \t pass|fail|skip \t TEXT`. Line ends, tabs and
//! backslashes in texts are escaped. Any other line on a worker's stdout was written by the plugin, which must not.

use crate::outcome::Outcome;

const MARK: &str = "llmrt-conform";

/// The question for a case.
pub fn question(number: u64, case: &str) -> String {
    format!("{number}\t{}\n", escape(case))
}

/// Number and case of a question.
pub fn parse_question(line: &str) -> Option<(u64, String)> {
    let (number, case) = line.trim_end_matches('\n').split_once('\t')?;
    Some((number.parse().ok()?, unescape(case)))
}

/// The answer to a question.
pub fn answer(number: u64, outcome: &Outcome) -> String {
    let (word, text) = match outcome {
        Outcome::Passed(text) => ("pass", text),
        Outcome::Failed(text) => ("fail", text),
        Outcome::Skipped(text) => ("skip", text),
    };
    format!("{MARK}\t{number}\t{word}\t{}\n", escape(text))
}

/// The outcome in an answer to this question; `None` if the line is anything else.
pub fn parse_answer(line: &str, number: u64) -> Option<Outcome> {
    let mut parts = line.trim_end_matches('\n').splitn(4, '\t');
    if parts.next()? != MARK || parts.next()?.parse() != Ok(number) {
        return None;
    }
    let outcome = match parts.next()? {
        "pass" => Outcome::Passed,
        "fail" => Outcome::Failed,
        "skip" => Outcome::Skipped,
        _ => return None,
    };
    Some(outcome(unescape(parts.next()?)))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some(other)) => out.push(other),
            (c, _) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_arrives_as_it_was_sent() {
        let text = "a\tb\\n\nc\r\\";
        let line = answer(7, &Outcome::Failed(text.into()));
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(parse_answer(&line, 7), Some(Outcome::Failed(text.into())));
        assert_eq!(parse_question(&question(3, text)), Some((3, text.into())));
    }

    #[test]
    fn what_a_plugin_prints_is_no_answer() {
        for line in ["hello", "llmrt-conform\t6\tpass\t", "llmrt-conform\t7\tfine\t", "llmrt-conform\t7"] {
            assert_eq!(parse_answer(line, 7), None, "{line}");
        }
    }
}
