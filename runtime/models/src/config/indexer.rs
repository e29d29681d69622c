//! Sparse attention: the `attention.indexer.*` keys.

use super::{Config, Keys, MAX_DIM};
use crate::error::Result;
use llmrt_abi::op::RopeParams;

/// Sizes of an indexer, which scores keys by few and short heads and so finds those that queries attend to. All 0 in models
/// that attend to all keys.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IndexerConfig {
    /// Query heads.
    pub n_head: u64,
    /// Elements of a head, and of a key.
    pub key_dim: u64,
    /// How many positions are attended to; where blocks of positions are scored, positions or blocks, as files have it.
    pub top_k: u64,
    /// How heads and keys are rotated; no elements: they are not.
    pub rope: RopeParams,
    /// Added to the variance in the norm of keys.
    pub norm_eps: f32,
    /// Positions of a block, where the best key of a block counts.
    pub block: u64,
    /// Blocks before and with a query's own that are always attended to.
    pub n_local: u64,
    /// Last positions that are attended to besides, where blocks have one key each.
    pub window: u32,
    /// Whether positions after the last whole block are left out.
    pub drops_tail: bool,
}

const MAX_HEADS: u64 = 1 << 12;

impl IndexerConfig {
    /// Rotated as the model's heads are.
    pub(crate) fn read(cfg: &Config, keys: &Keys<'_>) -> Result<IndexerConfig> {
        let rope = cfg.rope.params;
        Ok(IndexerConfig {
            n_head: keys.count("attention.indexer.head_count", 1..=MAX_HEADS)?,
            key_dim: keys.count("attention.indexer.key_length", u64::from(rope.n_dims).max(1)..=1 << 16)?,
            top_k: keys.count("attention.indexer.top_k", 1..=MAX_DIM)?,
            rope,
            norm_eps: 1e-6,
            ..IndexerConfig::default()
        })
    }

    /// Which layers have an indexer of their own; the others take what the last one before them found.
    pub(crate) fn read_types(keys: &Keys<'_>, n_layer: usize, default: Vec<bool>) -> Result<Vec<bool>> {
        const KEY: &str = "attention.indexer.types";
        let types = keys.flags(KEY, n_layer)?.unwrap_or(default);
        match types.first() {
            Some(true) => Ok(types),
            _ => Err(keys.bad(KEY, 0, "1 in layer 0, since no other comes before it")),
        }
    }
}

impl Config {
    /// Gives layers that `which` picks an indexer, whose keys each stand for so many positions.
    pub(crate) fn set_indexed(&mut self, stride: u64, which: impl Fn(usize) -> bool) {
        for (il, layer) in self.layers.iter_mut().enumerate() {
            layer.index_stride = if which(il) { stride } else { 0 };
        }
    }
}
