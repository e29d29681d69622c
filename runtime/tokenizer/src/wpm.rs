//! WordPiece: text is normalised and cut into words, then each word takes the longest token that fits, again and again.

use regex_automata::{Input, meta::Regex};
use unicode_normalization::UnicodeNormalization;

use crate::error::{Error, Result};
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
    r"[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]+",
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
    pub fn encode(&self, text: &str, index: &Index, ids: &mut Vec<u32>) -> Result<()> {
        for word in self.words(text) {
            let n_before = ids.len();
            if !self.match_longest(&format!("{SPACE}{word}"), index, ids) {
                ids.truncate(n_before);
                ids.push(self.unk.ok_or_else(|| Error::NoTokenFor { what: format!("the word {word:?}") })?);
            }
        }
        Ok(())
    }

    /// Covers `word` with tokens; false if some part of it has none.
    fn match_longest(&self, word: &str, index: &Index, ids: &mut Vec<u32>) -> bool {
        let mut at = 0;
        while at < word.len() {
            let most = word.len().min(at + self.longest);
            let fits = |end: usize| word.get(at..end).and_then(|piece| index.get(piece)).map(|id| (*id, end));
            let Some((id, end)) = (at + 1..=most).rev().find_map(fits) else { return false };
            ids.push(id);
            at = end;
        }
        true
    }

    /// Words between spaces, punctuation and CJK characters; lower case and without accents where so set.
    fn words(&self, text: &str) -> Vec<String> {
        let text: String = if self.strip_accents { text.nfd().collect() } else { text.to_string() };
        let mut words = Vec::new();
        let mut word = String::new();
        let mut at = 0;
        while let Some(found) = self.classes.search(&Input::new(&text).range(at..)) {
            let piece = &text[found.range()];
            at = found.end().max(at + 1);
            match found.pattern().as_usize() {
                SPACES => words.extend(take(&mut word)),
                IGNORED => {}
                MARKS if self.strip_accents => {}
                WORD_OF_ITS_OWN => {
                    words.extend(take(&mut word));
                    words.push(self.cased(piece));
                }
                _ => word.push_str(&self.cased(piece)),
            }
        }
        words.extend(take(&mut word));
        words
    }

    /// One code point for one code point, as BERT's own tables do it.
    fn cased(&self, piece: &str) -> String {
        let lower = |c: char| c.to_lowercase().next().unwrap_or(c);
        if self.lowercase { piece.chars().map(lower).collect() } else { piece.to_string() }
    }
}

/// The word so far, if there is one.
fn take(word: &mut String) -> Option<String> {
    (!word.is_empty()).then(|| std::mem::take(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let wpm = Wpm::new(&Index::new(), true, true, None);
        assert_eq!(wpm.words(text).join("|"), expected);
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
    fn symbols_beyond_ascii_stay_in_their_word() {
        check("a½b ✅c", "a½b|✅c");
    }
}
