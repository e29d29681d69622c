//! Multi-head latent attention: the keys that only its models have.

use super::{Config, Keys, MAX_DIM, RopeConfig};
use crate::error::Result;

/// Sizes of multi-head latent attention (arXiv 2405.04434). All 0 in models without it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MlaConfig {
    /// Elements between the two matrices of Q; 0: Q has one matrix.
    pub q_rank: u64,
    /// Elements of the latent vector that K and V of all heads are made of.
    pub kv_rank: u64,
    /// Elements of a head of Q that are rotated, and of the key that all heads share.
    pub n_rope: u64,
    /// Elements of a head of Q and K that are not rotated.
    pub n_nope: u64,
    /// Elements of a head of V.
    pub v_dim: u64,
}

impl MlaConfig {
    pub(crate) fn read(keys: &Keys<'_>, rope: &RopeConfig) -> Result<MlaConfig> {
        let n_rope = u64::from(rope.params.n_dims);
        Ok(MlaConfig {
            q_rank: keys.count_or("attention.q_lora_rank", 0..=MAX_DIM, 0)?,
            kv_rank: keys.count("attention.kv_lora_rank", 1..=MAX_DIM)?,
            n_rope,
            n_nope: keys.count("attention.key_length_mla", n_rope + 1..=MAX_DIM)? - n_rope,
            v_dim: keys.count("attention.value_length_mla", 1..=MAX_DIM)?,
        })
    }

    /// Sizes in layers with a window, of models that have keys of their own for these.
    pub(crate) fn read_windowed(&self, keys: &Keys<'_>) -> Result<MlaConfig> {
        let n_rope = self.n_rope;
        Ok(MlaConfig {
            q_rank: self.q_rank,
            kv_rank: keys.count("attention.kv_lora_rank_swa", 1..=MAX_DIM)?,
            n_rope,
            n_nope: keys.count("attention.key_length_mla_swa", n_rope + 1..=MAX_DIM)? - n_rope,
            v_dim: keys.count("attention.value_length_mla_swa", 1..=MAX_DIM)?,
        })
    }

    /// Of models whose keys and values are cached as heads: as many of them as queries have.
    pub(crate) fn read_expanded(cfg: &mut Config, keys: &Keys<'_>) -> Result<MlaConfig> {
        cfg.share_no_heads();
        let n_rope = u64::from(cfg.rope.params.n_dims);
        Ok(MlaConfig {
            q_rank: keys.count_or("attention.q_lora_rank", 0..=MAX_DIM, 0)?,
            kv_rank: keys.count("attention.kv_lora_rank", 1..=MAX_DIM)?,
            n_rope,
            n_nope: cfg.head_dim_k - n_rope,
            v_dim: cfg.head_dim_v,
        })
    }

    /// Elements of a head of Q.
    pub fn q_dim(&self) -> u64 {
        self.n_nope + self.n_rope
    }

    /// Elements of a row of the K cache: the latent vector, then the rotated key.
    pub fn k_row(&self) -> u64 {
        self.kv_rank + self.n_rope
    }
}
