//! What a caller provides for a model's steps: caches and inputs.

use crate::cache::CacheGroup;
use crate::input::Input;
use llmrt_abi::DType;
use std::collections::BTreeSet;

/// What a model's graphs read besides weights. Found by building the graph of one token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModelSpec {
    /// Groups of caches, in order of first use.
    pub caches: Vec<CacheGroup>,
    /// The arrays of a step, in order of first use.
    pub inputs: Vec<Input>,
}

impl ModelSpec {
    /// Bytes that one token takes in the caches of these types.
    pub fn bytes_per_token(&self, k_type: DType, v_type: DType) -> u64 {
        self.caches.iter().map(|group| group.bytes_per_token(k_type, v_type)).fold(0, u64::saturating_add)
    }

    /// Whether sequences have states, which a prefix of their tokens does not determine block by block.
    pub fn is_recurrent(&self) -> bool {
        self.caches.iter().any(|group| matches!(group, CacheGroup::Recurrent { .. }))
    }

    /// The names of the recurrent states.
    pub fn state_names(&self) -> BTreeSet<String> {
        let of_group = |group: &CacheGroup| match group {
            CacheGroup::Recurrent { layers, tensors } => layers
                .iter()
                .flat_map(|il| tensors.iter().map(move |tensor| format!("blk.{il}.{}", tensor.name)))
                .collect::<Vec<_>>(),
            CacheGroup::Paged { .. } => Vec::new(),
        };
        self.caches.iter().flat_map(of_group).collect()
    }
}
