//! Factors: on hidden states and logits, and on queries by their positions.

/// Queries at position p times 1 + scale · log(1 + floor((p + offset) / length)), which sharpens the softmax of long contexts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Temperature {
    /// Factor on the logarithm; 0: queries stay.
    pub scale: f32,
    /// Tokens between two steps.
    pub length: f32,
    /// Added to positions.
    pub offset: f32,
}

/// Factors on hidden states and logits; 1 in most models.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scales {
    /// On token embeddings.
    pub embedding: f32,
    /// On what attention and FFN add to the residual stream.
    pub residual: f32,
    /// On logits.
    pub logits: f32,
}

impl Default for Scales {
    fn default() -> Scales {
        Scales { embedding: 1.0, residual: 1.0, logits: 1.0 }
    }
}
