//! logit += bias, for tokens to make likelier, less likely or impossible (-inf).

use super::candidate::{Candidate, of_token};
use crate::error::{Error, Result};
use crate::sequence::TokenId;

/// Adds the biases to candidates of a vocabulary of `n_vocab` tokens, of which those that biases name are there.
pub fn apply(candidates: &mut [Candidate], biases: &[(TokenId, f32)], n_vocab: usize) -> Result<()> {
    for &(token, bias) in biases {
        let candidate = of_token(candidates, token).ok_or(Error::BiasOutOfVocab { token, n_vocab })?;
        candidate.logit = (candidate.logit + bias).min(f32::MAX);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    #[test]
    fn biases_are_added_and_minus_infinity_forbids() {
        let mut c = Vec::new();
        read(&[1.0, 2.0, f32::MAX], &mut c).unwrap();
        apply(&mut c, &[(0, 1.5), (1, f32::NEG_INFINITY), (2, f32::MAX)], 3).unwrap();
        let logits: Vec<_> = c.iter().map(|c| c.logit).collect();
        assert_eq!(logits, [2.5, f32::NEG_INFINITY, f32::MAX]);
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_an_error() {
        let mut c = Vec::new();
        read(&[1.0, 2.0], &mut c).unwrap();
        let error = apply(&mut c, &[(2, 1.0)], 2).unwrap_err();
        assert_eq!(error.to_string(), "logit bias names token 2: the vocabulary has the ids 0 to 1");
    }
}
