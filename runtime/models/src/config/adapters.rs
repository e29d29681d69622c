//! Adapters within a model: the `adapters.*` keys.

use super::{Keys, MAX_DIM};
use crate::error::Result;

/// Matrices of low rank beside a model's own, of which tokens of the text pick those that are used (Granite Switch).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AdapterConfig {
    /// Elements between the two matrices of an adapter.
    pub rank: u64,
    /// How much tokens that pick an adapter outweigh others.
    pub gain: f32,
    /// The token that picks each adapter, and the token that the model reads in its place.
    pub tokens: Vec<[i32; 2]>,
}

// Every adapter adds a few nodes to the graph.
const MAX_ADAPTERS: u64 = 1 << 8;

impl AdapterConfig {
    pub(crate) fn read(keys: &Keys<'_>, n_vocab: u64) -> Result<AdapterConfig> {
        let n = keys.count("adapters.count", 0..=MAX_ADAPTERS)? as usize;
        let read = |key: &str| -> Result<Vec<i32>> {
            let ids: Vec<i32> = keys.meta.require(&keys.name(key))?;
            match ids.len() == n && ids.iter().all(|&id| u64::try_from(id).is_ok_and(|id| id < n_vocab)) {
                true => Ok(ids),
                false => Err(keys.bad(key, format!("{ids:?}"), format!("{n} tokens of {n_vocab}"))),
            }
        };
        const PICKS: &str = "adapters.token_ids_activate";
        let (picks, substitutes) = (read(PICKS)?, read("adapters.token_ids_substitute")?);
        if (1..n).any(|i| picks[..i].contains(&picks[i])) {
            return Err(keys.bad(PICKS, format!("{picks:?}"), "a token for each adapter"));
        }
        Ok(AdapterConfig {
            rank: keys.count("adapters.lora_rank", 1..=MAX_DIM)?,
            gain: keys.optional("adapters.router_gain")?.unwrap_or(15.0),
            tokens: picks.into_iter().zip(substitutes).map(|(pick, substitute)| [pick, substitute]).collect(),
        })
    }
}
