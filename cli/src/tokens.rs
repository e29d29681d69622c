//! Token ids as people write them: `1 15043 3186`, with spaces, commas or line ends between them.

use crate::error::{Error, Result};
use llmrt_engine::TokenId;

/// The ids in `text`; `what` names where it came from.
pub fn parse(text: &str, what: &str) -> Result<Vec<TokenId>> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let ids = words.enumerate().map(|(i, word)| {
        word.parse().map_err(|_| {
            let word: String = word.chars().take(40).collect();
            Error::usage(format!(
                "{what}: entry {i} is `{word}`: expected token ids, whole numbers from 0 with spaces or commas \
                 between them"
            ))
        })
    });
    ids.collect()
}

/// An error for the first id that the vocabulary does not have.
pub fn check(ids: &[TokenId], n_vocab: u64, what: &str) -> Result<()> {
    match ids.iter().position(|&id| u64::from(id) >= n_vocab) {
        None => Ok(()),
        Some(i) => Err(Error::usage(format!(
            "{what}: entry {i} is token {}: the vocabulary has {n_vocab} tokens, ids 0 to {}",
            ids[i],
            n_vocab.saturating_sub(1)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_commas_and_lines_separate_ids() {
        assert_eq!(parse(" 1 2,3,\n 4\t5,, ", "--tokens").unwrap(), [1, 2, 3, 4, 5]);
        assert!(parse("", "--tokens").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_id_is_named_with_its_place() {
        for (text, expected) in
            [("1 x", "entry 1 is `x`"), ("-1", "entry 0 is `-1`"), ("4294967296", "entry 0")]
        {
            let error = parse(text, "--tokens").unwrap_err();
            assert!(
                error.message.starts_with("--tokens: ") && error.message.contains(expected),
                "{}",
                error.message
            );
        }
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_named() {
        assert!(check(&[0, 9], 10, "x").is_ok());
        let message = check(&[0, 10], 10, "x").unwrap_err().message;
        assert_eq!(message, "x: entry 1 is token 10: the vocabulary has 10 tokens, ids 0 to 9");
    }
}
