//! What one vector of a text is made of.

use super::Keys;
use crate::error::Result;

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pooling {
    /// They do not: each token has a vector.
    None,
    /// Their mean.
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
    /// The first token's, the last one's where tokens see only those before them, goes through the model's classifier: scores.
    Rank,
}

/// What makes scores of a vector, where the file has its tensors, `cls`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classifier {
    /// Numbers that it gives.
    pub n_scores: u64,
    /// Whether GELU comes after its first matrix, in place of tanh.
    pub has_gelu: bool,
    /// Whether the scores are a softmax.
    pub has_softmax: bool,
}

/// Most labels of a classifier.
const MAX_LABELS: usize = 1 << 16;

impl Keys<'_> {
    /// The pooling that the file names, if it does.
    pub fn pooling(&self) -> Result<Option<Pooling>> {
        const KEY: &str = "pooling_type";
        Ok(match self.optional::<i64>(KEY)? {
            None | Some(-1 | 0xffff_ffff) => None,
            Some(0) => Some(Pooling::None),
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::Cls),
            Some(3) => Some(Pooling::Last),
            Some(4) => Some(Pooling::Rank),
            Some(found) => return Err(self.bad(KEY, found, "0 to 4, or -1 for none")),
        })
    }

    /// A classifier with a score for each label that the file names, or one.
    pub fn classifier(&self) -> Result<Classifier> {
        const KEY: &str = "classifier.output_labels";
        let n_labels = self.optional::<&[String]>(KEY)?.map_or(1, <[String]>::len);
        match n_labels {
            1..=MAX_LABELS => {
                Ok(Classifier { n_scores: n_labels as u64, has_gelu: false, has_softmax: false })
            }
            _ => Err(self.bad(KEY, format!("an array of {n_labels}"), format!("1 to {MAX_LABELS} labels"))),
        }
    }
}
