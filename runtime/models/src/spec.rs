//! What a caller provides for a model's steps: caches and inputs.

use crate::batch::{BatchShape, StepOutput};
use crate::cache::{CacheGroup, ValueRows};
use crate::config::Pooling;
use crate::input::Input;
use llmrt_abi::DType;
use std::collections::{BTreeMap, BTreeSet};

/// What a model's graphs read besides weights. Found by building the graph of one token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelSpec {
    /// Groups of caches, in order of first use.
    pub caches: Vec<CacheGroup>,
    /// The arrays of a step, in order of first use.
    pub inputs: Vec<Input>,
    /// Whether tokens see those before them alone. If not, a text is computed whole, in one step, and again when it grows.
    pub is_causal: bool,
    /// Whether it gives logits. If not, only hidden states.
    pub has_logits: bool,
    /// Positions that the model has a vector of, where it learned them: texts are no longer. `None`: of any.
    pub n_positions: Option<u64>,
    /// How the vectors of a text's tokens become one, if the file names it.
    pub pooling: Option<Pooling>,
}

/// How a cache is addressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheKind {
    /// By blocks of tokens, of a layer that sees so many tokens; 0: all.
    Paged {
        /// Tokens that attention sees, the query included.
        window: u32,
    },
    /// By slots, each with the state of a whole sequence.
    Recurrent,
}

impl CacheKind {
    /// Blocks or slots of such a cache.
    pub fn n_units(self, shape: &BatchShape) -> u64 {
        match self {
            CacheKind::Paged { window } => shape.n_blocks_of(window),
            CacheKind::Recurrent => shape.n_state_slots,
        }
    }
}

impl ModelSpec {
    /// What the steps of most requests to the model give: scores of rerankers, logits of all others that have some.
    pub fn output(&self) -> StepOutput {
        match (self.pooling, self.has_logits) {
            (Some(Pooling::Rank), _) => StepOutput::Scores,
            (_, true) => StepOutput::Logits,
            (_, false) => StepOutput::Embeddings,
        }
    }

    /// The pooling that the file names; else the last token, which sees all others, or the mean where all do.
    pub fn default_pooling(&self) -> Pooling {
        self.pooling.unwrap_or(if self.is_causal { Pooling::Last } else { Pooling::Mean })
    }

    /// Bytes that one token takes in the caches of these types.
    pub fn bytes_per_token(&self, k_type: DType, v_type: DType) -> u64 {
        self.caches.iter().map(|group| group.bytes_per_token(k_type, v_type)).fold(0, u64::saturating_add)
    }

    /// Bytes of the states of one sequence.
    pub fn bytes_per_sequence(&self) -> u64 {
        self.caches.iter().map(CacheGroup::bytes_per_sequence).fold(0, u64::saturating_add)
    }

    /// Whether sequences have states, which a prefix of their tokens does not determine block by block.
    pub fn is_recurrent(&self) -> bool {
        self.caches.iter().any(|group| matches!(group, CacheGroup::Recurrent { .. }))
    }

    /// Whether an encoder reads a text before the decoder goes on.
    pub fn has_encoder(&self) -> bool {
        self.inputs.contains(&Input::EncoderTokens)
    }

    /// The windows of layers that do not see whole contexts, each once.
    pub fn windows(&self) -> Vec<u32> {
        let window = |group: &CacheGroup| match group {
            CacheGroup::Paged { window, .. } => *window,
            CacheGroup::Index { .. } | CacheGroup::Cross { .. } | CacheGroup::Recurrent { .. } => 0,
        };
        let windows: BTreeSet<u32> = self.caches.iter().map(window).filter(|window| *window > 0).collect();
        windows.into_iter().collect()
    }

    /// The graph's states by name, and how each is addressed.
    pub fn states(&self) -> BTreeMap<String, CacheKind> {
        let mut states = BTreeMap::new();
        for group in &self.caches {
            match group {
                CacheGroup::Paged { layers, window } => {
                    let kind = CacheKind::Paged { window: *window };
                    for layer in layers {
                        states.insert(format!("blk.{}.k_cache", layer.il), kind);
                        if let ValueRows::Own(_) = layer.v {
                            states.insert(format!("blk.{}.v_cache", layer.il), kind);
                        }
                    }
                }
                CacheGroup::Index { layers } => {
                    let kind = CacheKind::Paged { window: 0 };
                    states.extend(layers.iter().map(|(il, _)| (format!("blk.{il}.index_cache"), kind)));
                }
                CacheGroup::Cross { layers } => {
                    let names = layers
                        .iter()
                        .flat_map(|layer| ["k", "v"].map(|kv| format!("blk.{}.cross_{kv}_cache", layer.il)));
                    states.extend(names.map(|name| (name, CacheKind::Paged { window: 0 })));
                }
                CacheGroup::Recurrent { layers, tensors } => {
                    let names = layers
                        .iter()
                        .flat_map(|il| tensors.iter().map(move |tensor| format!("blk.{il}.{}", tensor.name)));
                    states.extend(names.map(|name| (name, CacheKind::Recurrent)));
                }
            }
        }
        states
    }
}
