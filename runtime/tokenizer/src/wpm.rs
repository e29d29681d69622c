//! WordPiece: text is normalised and cut into words, then each word takes the longest token that fits, again and again.

use llmrt_gguf::printable_name;
use regex_automata::{Input, meta::Regex};
use unicode_normalization::UnicodeNormalization;

use crate::error::{Error, Result};
use crate::limits::Output;
use crate::spm::SPACE;
use crate::tokenizer::Index;

/// The normaliser's settings. In GGUF a token that starts a word starts with [`SPACE`]; others go on a word.
#[derive(Debug)]
pub(crate) struct Wpm {
    classes: Regex,
    lowercase: bool,
    strip_accents: bool,
    longest: usize,
    unk: Option<u32>,
}

/// What the pattern with this number stands for; earlier ones win.
const SPACES: usize = 0;
const IGNORED: usize = 1;
const MARKS: usize = 2;
const WORD_OF_ITS_OWN: usize = 3;

const CLASSES: [&str; 5] = [
    r"\s+",
    r"[[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]--\s]+",
    r"\p{M}+",
    concat!(
        r"[\p{P}[\p{S}&&\p{ASCII}]",
        r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}",
        r"\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
    ),
    r"(?s:.)",
];

impl Wpm {
    /// `unk` stands for a word that no tokens make up.
    pub fn new(index: &Index, lowercase: bool, strip_accents: bool, unk: Option<u32>) -> Self {
        Self {
            classes: Regex::new_many(&CLASSES).expect("the five classes compile: a test builds them"),
            lowercase,
            strip_accents,
            longest: index.keys().map(|piece| piece.len()).max().unwrap_or(0),
            unk,
        }
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, index: &Index, output: &mut Output) -> Result<()> {
        self.each_word(text, &mut |word| {
            let n_before = output.len();
            if !self.match_longest(&format!("{SPACE}{word}"), index, output)? {
                output.truncate(n_before);
                let unknown = || Error::NoTokenFor { what: format!("the word `{}`", printable_name(word)) };
                output.push(self.unk.ok_or_else(unknown)?)?;
            }
            output.step()
        })
    }

    /// Covers `word` with tokens; false if some part of it has none.
    fn match_longest(&self, word: &str, index: &Index, output: &mut Output) -> Result<bool> {
        let mut at = 0;
        'tokens: while at < word.len() {
            let longest = word.len().min(at + self.longest);
            for end in (at + 1..=longest).rev() {
                output.step()?;
                if let Some(id) = word.get(at..end).and_then(|piece| index.get(piece)) {
                    output.push(*id)?;
                    at = end;
                    continue 'tokens;
                }
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Gives words between spaces, punctuation and CJK characters to `visit`; lower case and without accents where so
    /// set.
    fn each_word(&self, text: &str, visit: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let text: String = if self.strip_accents { text.nfd().collect() } else { text.to_string() };
        let mut word = String::new();
        let mut at = 0;
        while let Some(found) = self.classes.search(&Input::new(&text).range(at..)) {
            let piece = &text[found.range()];
            at = found.end().max(at + 1);
            match found.pattern().as_usize() {
                SPACES => end_word(&mut word, visit)?,
                IGNORED => {}
                MARKS if self.strip_accents => {}
                WORD_OF_ITS_OWN => {
                    end_word(&mut word, visit)?;
                    visit(&self.cased(piece))?;
                }
                _ => word.push_str(&self.cased(piece)),
            }
        }
        end_word(&mut word, visit)
    }

    /// One code point for one code point, as BERT's own tables do it.
    fn cased(&self, piece: &str) -> String {
        if self.lowercase { piece.chars().map(lower).collect() } else { piece.to_string() }
    }
}

/// One code point for one code point.
pub(crate) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// Gives the word so far to `visit`, if there is one, and begins the next.
fn end_word(word: &mut String, visit: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    if !word.is_empty() {
        visit(word)?;
        word.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let wpm = Wpm::new(&Index::new(), true, true, None);
        let mut words = Vec::new();
        let visit = &mut |word: &str| {
            words.push(word.to_string());
            Ok(())
        };
        wpm.each_word(text, visit).expect("nothing fails here");
        assert_eq!(words.join("|"), expected);
    }

    #[test]
    fn words_end_at_spaces_punctuation_and_han() {
        check("Hello, world  a+b", "hello|,|world|a|+|b");
        check("東京 x", "東|京|x");
    }

    #[test]
    fn accents_and_controls_vanish() {
        check("Café İx\u{0}y\u{200d}z", "cafe|ixyz");
    }

    #[test]
    fn a_line_end_after_a_control_character_ends_a_word() {
        check("a\u{200d}\nb\u{7}\tc", "a|b|c");
    }

    #[test]
    fn symbols_beyond_ascii_stay_in_their_word() {
        check("a½b ✅c", "a½b|✅c");
    }
}
