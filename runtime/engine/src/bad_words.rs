//! Words that a text must not contain.

use crate::error::{Error, Result};
use crate::sequence::TokenId;
use llmrt_tokenizer::{EncodeOptions, Tokenizer};

/// The words' tokens: each word as at the beginning of a text, and as after a space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BadWords(Vec<Vec<TokenId>>);

impl BadWords {
    /// Words as tokens of a vocabulary. An empty word is an error, as are words without a vocabulary.
    pub fn new(words: &[String], tokenizer: Option<&Tokenizer>) -> Result<BadWords> {
        let mut all = Vec::new();
        for word in words {
            let tokenizer = tokenizer.ok_or(Error::NoTokenizer)?;
            let word = word.trim_start();
            if word.is_empty() {
                return Err(Error::EmptyBadWord);
            }
            let encode = |text: &str| tokenizer.encode(text, EncodeOptions::default());
            let (plain, spaced) = (encode(word)?, encode(&format!(" {word}"))?);
            // A space of its own in front is no other word.
            if spaced.len() == plain.len() && spaced != plain {
                all.push(spaced);
            }
            all.push(plain);
        }
        Ok(BadWords(all))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tokens that must not follow the generated ones: each would complete a word.
    pub fn next<'a>(&'a self, generated: &'a [TokenId]) -> impl Iterator<Item = TokenId> + 'a {
        let last = |word: &'a Vec<TokenId>| {
            let (last, before) = word.split_last()?;
            generated.ends_with(before).then_some(*last)
        };
        self.0.iter().filter_map(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_of_a_word_is_forbidden_after_the_others() {
        let words = BadWords(vec![vec![7], vec![1, 2, 3], vec![2, 9]]);
        let next = |generated: &[TokenId]| words.next(generated).collect::<Vec<_>>();
        assert_eq!(next(&[]), [7]);
        assert_eq!(next(&[5, 1, 2]), [7, 3, 9]);
        assert_eq!(next(&[1, 2, 4]), [7]);
        assert_eq!(BadWords::default().next(&[1]).count(), 0);
    }

    #[test]
    fn words_need_letters_and_a_vocabulary() {
        assert_eq!(BadWords::new(&["a".into()], None), Err(Error::NoTokenizer));
        assert!(BadWords::new(&[], None).unwrap().is_empty());
    }
}
