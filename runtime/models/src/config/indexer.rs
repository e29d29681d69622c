//! Sparse attention: the `attention.indexer.*` keys.

use super::{Keys, MAX_DIM};
use crate::error::Result;

/// Sizes of an indexer, which scores keys by few and short heads and so finds those that queries attend to. All 0 in models
/// that attend to all keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexerConfig {
    /// Query heads.
    pub n_head: u64,
    /// Elements of a head, and of a key.
    pub key_dim: u64,
    /// Positions that are attended to; where keys are scored by blocks of positions, those of whole blocks.
    pub top_k: u64,
}

const MAX_HEADS: u64 = 1 << 12;

impl IndexerConfig {
    pub(crate) fn read(keys: &Keys<'_>) -> Result<IndexerConfig> {
        Ok(IndexerConfig {
            n_head: keys.count("attention.indexer.head_count", 1..=MAX_HEADS)?,
            key_dim: keys.count("attention.indexer.key_length", 1..=1 << 16)?,
            top_k: keys.count("attention.indexer.top_k", 1..=MAX_DIM)?,
        })
    }
}
