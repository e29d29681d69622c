//! Guesses that repeat the text itself (prompt lookup decoding, as vLLM's `ngram` and llama.cpp's lookup).

use super::{DraftInput, Drafter};
use crate::error::Result;
use crate::sequence::TokenId;

/// Finds the last tokens of a text earlier in it, and guesses that what followed them follows again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ngrams {
    /// Fewest last tokens that must be found.
    pub min: usize,
    /// Most last tokens that are searched for; longer matches count before shorter ones.
    pub max: usize,
}

/// 2 to 4 tokens.
impl Default for Ngrams {
    fn default() -> Ngrams {
        Ngrams { min: 2, max: 4 }
    }
}

impl Ngrams {
    /// At most `max_drafts` tokens after the latest earlier place of the longest n-gram at the end of `tokens`.
    pub fn guess(&self, tokens: &[TokenId], max_drafts: usize) -> Vec<TokenId> {
        let longest = |n: usize| {
            let (before, last) = tokens.split_at_checked(tokens.len().checked_sub(n)?)?;
            // The match may overlap the n-gram itself, but not be it.
            let at = (0..before.len()).rev().find(|&i| tokens[i..].starts_with(last))?;
            Some(&tokens[at + n..])
        };
        let found = (self.min.max(1)..=self.max).rev().find_map(longest).unwrap_or_default();
        // A match that overlaps the end goes on with its own guesses: a text of one repeated token repeats it.
        found.iter().cycle().take(if found.is_empty() { 0 } else { max_drafts }).copied().collect()
    }
}

impl<R> Drafter<R> for Ngrams {
    fn draft(&mut self, texts: &[DraftInput<'_>], _target: &mut R) -> Result<Vec<Vec<TokenId>>> {
        Ok(texts.iter().map(|text| self.guess(text.sequence.tokens(), text.max_drafts)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_longest_latest_match_is_guessed() {
        let ngrams = Ngrams { min: 2, max: 3 };
        let text = [1, 2, 3, 9, 5, 2, 3, 7, 8, 1, 2, 3];
        assert_eq!(ngrams.guess(&text, 2), [9, 5], "three tokens match before two");
        let text = [1, 2, 3, 9, 1, 2, 3, 7, 0, 2, 3];
        assert_eq!(ngrams.guess(&text, 3), [7, 0, 2], "the latest of equal length");
        assert_eq!(ngrams.guess(&[1, 2, 3, 4], 4), [0_u32; 0]);
        assert_eq!(ngrams.guess(&[4, 4, 4], 5), [4; 5], "a match may overlap the end");
        assert_eq!(ngrams.guess(&[6, 4, 5, 4, 5, 4, 5], 4), [4, 5, 4, 5]);
        assert_eq!(ngrams.guess(&[7], 4), [0_u32; 0]);
        assert_eq!(ngrams.guess(&[], 4), [0_u32; 0]);
    }

    #[test]
    fn one_token_is_enough_where_that_is_allowed() {
        assert_eq!(Ngrams { min: 1, max: 1 }.guess(&[3, 8, 1, 3], 2), [8, 1]);
        assert_eq!(Ngrams { min: 0, max: 1 }.guess(&[3, 8], 2), [0_u32; 0]);
    }
}
