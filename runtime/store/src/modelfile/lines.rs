//! The lines of a Modelfile: a word, and the rest, which three quotes spread over several lines.

use crate::error::{Error, Result};

/// Begins and ends a text of several lines.
const QUOTES: &str = "\"\"\"";

/// An instruction before it is interpreted.
pub(crate) struct Line {
    /// Of the line it begins in, from 1.
    pub number: usize,
    /// The instruction.
    pub word: String,
    /// What follows, without white space around it; with its quotes.
    rest: String,
}

/// Splits a file into instructions; blank lines and those that begin with `#` are skipped.
pub(crate) fn split(text: &str) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut left = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut number = 1;
    while !left.is_empty() {
        let (line, after) = left.split_once('\n').unwrap_or((left, ""));
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            (left, number) = (after, number + 1);
            continue;
        }
        let end = instruction_end(left).map_err(|problem| Error::Modelfile { line: number, problem })?;
        let (word, rest) = split_word(left[..end].trim());
        lines.push(Line { number, word: word.into(), rest: rest.into() });
        number += left[..end].matches('\n').count() + 1;
        left = left[end..].strip_prefix('\n').unwrap_or("");
    }
    Ok(lines)
}

/// Where the instruction that `text` begins with ends: at its line's end, or at that of the closing quotes.
fn instruction_end(text: &str) -> std::result::Result<usize, String> {
    let line_end = |from: usize| text[from..].find('\n').map_or(text.len(), |at| from + at);
    let first_line = &text[..line_end(0)];
    let Some(opening) = opening(first_line) else { return Ok(first_line.len()) };
    let begin = opening + QUOTES.len();
    let Some(at) = text[begin..].find(QUOTES) else {
        return Err(format!("the text after {QUOTES} has no {QUOTES} at its end"));
    };
    // Of more quotes the last three close.
    let closing = text[begin + at..].bytes().take_while(|&b| b == b'"').count();
    let end = begin + at + closing;
    let after = text[end..line_end(end)].trim();
    match after.is_empty() {
        true => Ok(line_end(end)),
        false => Err(format!(
            "expected the line's end after the closing {QUOTES}, found `{}`",
            after.escape_debug()
        )),
    }
}

/// Where three quotes begin the first or second argument of a line.
fn opening(line: &str) -> Option<usize> {
    let at = line.find(QUOTES)?;
    let before: Vec<&str> = line[..at].split_whitespace().collect();
    let is_argument = line[..at].ends_with(char::is_whitespace);
    let has_two = |word: &str| word.eq_ignore_ascii_case("PARAMETER") || word.eq_ignore_ascii_case("MESSAGE");
    match before[..] {
        [_] if is_argument => Some(at),
        [word, _] if is_argument && has_two(word) => Some(at),
        _ => None,
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

impl Line {
    /// What follows the instruction, without its quotes.
    pub fn text(&self) -> std::result::Result<String, String> {
        unquoted(&self.rest)
    }

    /// The word and the text that follow the instruction.
    pub fn word_and_text(&self) -> std::result::Result<(String, String), String> {
        let (word, rest) = split_word(&self.rest);
        match word.is_empty() || rest.is_empty() {
            true => Err(format!("{} needs a name and a text", self.word.to_ascii_uppercase())),
            false => Ok((word.into(), unquoted(rest)?)),
        }
    }
}

fn unquoted(text: &str) -> std::result::Result<String, String> {
    let is_quoted =
        |quotes: &str| text.len() >= 2 * quotes.len() && text.starts_with(quotes) && text.ends_with(quotes);
    let inner = |n: usize| Ok(text[n..text.len() - n].to_string());
    if is_quoted(QUOTES) {
        return inner(QUOTES.len());
    }
    match text.starts_with('"') {
        true if is_quoted("\"") => inner(1),
        true => Err(format!("the text `{}` has no `\"` at its end", text.escape_debug())),
        false => Ok(text.into()),
    }
}

/// A text as a line has it; `None` where three quotes are in it.
pub(crate) fn quoted(text: &str) -> Option<String> {
    let is_plain = !text.is_empty() && !text.contains(['\n', '"']) && text.trim() == text;
    if is_plain {
        return Some(text.into());
    }
    (!text.contains(QUOTES)).then(|| format!("{QUOTES}{text}{QUOTES}"))
}
