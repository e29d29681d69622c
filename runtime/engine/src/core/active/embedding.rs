//! The vector of a text, made of those of its tokens.

use super::Given;
use crate::error::{Error, Result};
use crate::sampler::Row;
use crate::scheduler::Child;
use llmrt_models::Pooling;

/// What has come of a text's vectors so far.
pub struct Embedding {
    pooling: Pooling,
    normalise: bool,
    /// Whether tokens see those before them alone: then the last one's scores are the text's.
    is_causal: bool,
    /// Position of the next vector that counts: those of a text that is computed again do not.
    next: usize,
    /// Of a mean.
    sum: Vec<f64>,
    vectors: Vec<Vec<f32>>,
    is_complete: bool,
}

impl Embedding {
    /// Nothing is computed yet.
    pub fn new(pooling: Pooling, normalise: bool, is_causal: bool) -> Embedding {
        let (sum, vectors) = (Vec::new(), Vec::new());
        Embedding { pooling, normalise, is_causal, next: 0, sum, vectors, is_complete: false }
    }

    /// Whether all tokens' vectors are there.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The position from which on the vectors of tokens are needed, besides the last one's.
    pub fn rows_from(&self) -> Option<usize> {
        match self.pooling {
            Pooling::None | Pooling::Mean | Pooling::Cls => Some(0),
            Pooling::Rank => (!self.is_causal).then_some(0),
            Pooling::Last => None,
        }
    }

    /// Takes the vectors of a step; no sequence goes on after the last of `n_tokens`.
    pub fn take(&mut self, given: &Given<'_>, n_tokens: usize) -> Result<Option<Vec<Child>>> {
        for (row, vector) in given {
            let is_next = row.position == self.next || self.rows_from().is_none();
            if let (Row::All(vector), true, false) = (vector, is_next, self.is_complete) {
                self.add(row.position, vector)?;
                self.next = row.position + 1;
                if self.next == n_tokens {
                    self.complete(n_tokens);
                }
            }
        }
        let is_last = given.iter().any(|(row, _)| row.position + 1 == n_tokens);
        Ok(is_last.then(Vec::new))
    }

    fn add(&mut self, position: usize, vector: &[f32]) -> Result<()> {
        if let Some(&found) = vector.iter().find(|x| !x.is_finite()) {
            return Err(Error::BadEmbedding { position, found });
        }
        match self.pooling {
            Pooling::Mean => {
                self.sum.resize(vector.len(), 0.0);
                self.sum.iter_mut().zip(vector).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            Pooling::None => self.vectors.push(vector.to_vec()),
            Pooling::Cls | Pooling::Last | Pooling::Rank if self.vectors.is_empty() => {
                self.vectors.push(vector.to_vec());
            }
            Pooling::Cls | Pooling::Last | Pooling::Rank => {}
        }
        Ok(())
    }

    fn complete(&mut self, n_tokens: usize) {
        self.is_complete = true;
        if self.pooling == Pooling::Mean {
            self.vectors = vec![self.sum.iter().map(|sum| (sum / n_tokens as f64) as f32).collect()];
        }
        if self.normalise && self.pooling != Pooling::Rank {
            self.vectors.iter_mut().for_each(|vector| normalise(vector));
        }
    }

    /// The vectors: one, or one of each token.
    pub fn take_vectors(&mut self) -> Vec<Vec<f32>> {
        std::mem::take(&mut self.vectors)
    }
}

/// Divides a vector by its length; one of length 0 stays.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}
