//! What one vector of a text is made of.

use super::Keys;
use crate::error::Result;
use llmrt_gguf::Value;

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
    /// The first token's, the last one's where tokens see only those before them, or the mean ([`Classifier::pooling`]) goes
    /// through the model's classifier: scores.
    Rank,
}

/// What makes scores of a vector, where the file has its tensors, `cls`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classifier {
    /// Numbers that it gives.
    pub n_scores: u64,
    /// How the vectors of a text's tokens become the one that it takes, if the file names it. All but the mean count as
    /// [`Pooling::Rank`] by itself.
    pub pooling: Option<Pooling>,
    /// Whether GELU comes after its first matrix, in place of tanh.
    pub has_gelu: bool,
    /// Whether the scores are a softmax.
    pub has_softmax: bool,
}

impl Classifier {
    /// Whether it takes the mean of a text.
    pub fn takes_mean(&self) -> bool {
        self.pooling == Some(Pooling::Mean)
    }
}

/// Most labels of a classifier.
const MAX_LABELS: usize = 1 << 16;

impl Keys<'_> {
    /// The pooling that the file names, if it does.
    pub fn pooling(&self) -> Result<Option<Pooling>> {
        self.pooling_at("pooling_type")
    }

    fn pooling_at(&self, key: &str) -> Result<Option<Pooling>> {
        Ok(match self.optional::<i64>(key)? {
            None | Some(-1 | 0xffff_ffff) => None,
            Some(0) => Some(Pooling::None),
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::Cls),
            Some(3) => Some(Pooling::Last),
            Some(4) => Some(Pooling::Rank),
            Some(found) => return Err(self.bad(key, found, "0 to 4, or -1 for none")),
        })
    }

    /// A classifier with a score for each label that the file names, or one.
    pub fn classifier(&self) -> Result<Classifier> {
        const KEY: &str = "classifier.output_labels";
        let labels = self.meta.get(&self.name(KEY));
        let n_labels = match labels {
            // Files write an empty array, of any type, for what they leave out.
            None => 1,
            Some(Value::Array(labels)) => labels.len().max(1),
            Some(_) => self.optional::<&[String]>(KEY)?.map_or(1, <[String]>::len),
        };
        match n_labels {
            1..=MAX_LABELS => Ok(Classifier {
                n_scores: n_labels as u64,
                pooling: self.pooling_at("classifier.pooling_type")?,
                has_gelu: false,
                has_softmax: false,
            }),
            _ => Err(self.bad(KEY, format!("an array of {n_labels}"), format!("1 to {MAX_LABELS} labels"))),
        }
    }
}
