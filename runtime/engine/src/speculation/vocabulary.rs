//! Whether two models have the same tokens.

use crate::error::{Error, Result};
use crate::sequence::TokenId;
use llmrt_tokenizer::Tokenizer;

/// Most tokens that one vocabulary has more than the other: files pad theirs (llama.cpp's limit).
const MAX_PADDING: usize = 128;

/// Refuses a draft model whose tokens are not those of the texts' model.
pub fn check_vocabulary(texts: &Tokenizer, draft: &Tokenizer) -> Result<()> {
    let (n_texts, n_draft) = (texts.n_tokens(), draft.n_tokens());
    let n_both = n_texts.min(n_draft);
    let differs = |&id: &TokenId| texts.piece(id) != draft.piece(id);
    let first = (0..n_both as TokenId).find(differs);
    match first.or((n_texts.abs_diff(n_draft) > MAX_PADDING).then_some(n_both as TokenId)) {
        Some(token) => {
            let name = |tokenizer: &Tokenizer| tokenizer.piece(token).unwrap_or("(none)").to_string();
            let (found, expected) = (name(draft), name(texts));
            Err(Error::OtherVocabulary { token, found, n_found: n_draft, expected, n_expected: n_texts })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(n_tokens: usize, other: Option<usize>) -> Tokenizer {
        let piece = |i| (0.0, format!("piece {}", if Some(i) == other { 900 } else { i }).into_bytes());
        Tokenizer::llama2c((0..n_tokens).map(piece).collect()).unwrap()
    }

    #[test]
    fn vocabularies_differ_in_no_token_and_little_padding() {
        let texts = tokenizer(300, None);
        for (n_tokens, other, refused) in [
            (300, None, None),
            (428, None, None),
            (429, None, Some(300)),
            (172, None, None),
            (300, Some(7), Some(7)),
        ] {
            let found = check_vocabulary(&texts, &tokenizer(n_tokens, other));
            let token = found.err().map(|e| match e {
                Error::OtherVocabulary { token, .. } => token,
                e => panic!("{e}"),
            });
            assert_eq!(token, refused, "{n_tokens} tokens");
        }
    }
}
