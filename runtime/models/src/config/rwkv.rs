//! RWKV: the keys that only its models have.

use super::{Config, Keys, MAX_DIM};
use crate::error::Result;

/// Sizes of RWKV 6 and 7 (arXiv 2404.05892, 2503.14456). All 0 in other models.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RwkvConfig {
    /// Elements of a head.
    pub head_dim: u64,
    /// Heads.
    pub n_head: u64,
    /// Heads of K and V.
    pub n_head_kv: u64,
    /// RWKV 6: elements between the matrices that make what a token is mixed by with the one before it.
    pub mix_rank: u64,
    /// Elements between the matrices of the decay.
    pub decay_rank: u64,
    /// RWKV 7: elements between the matrices of the rate at which a state learns.
    pub rate_rank: u64,
    /// RWKV 7: elements between the matrices of the share that the first layer's values have.
    pub value_rank: u64,
    /// RWKV 7: elements between the matrices of the gate; 0: there is none.
    pub gate_rank: u64,
    /// Hidden states are halved after every so many layers; 0: never.
    pub halved_every: usize,
}

impl RwkvConfig {
    /// Sizes of RWKV 6.
    pub(crate) fn read_6(cfg: &Config, keys: &Keys<'_>) -> Result<RwkvConfig> {
        let rwkv = RwkvConfig::read_common(cfg, keys)?;
        let n_head_kv = keys.count_or("attention.head_count_kv", 1..=rwkv.n_head, rwkv.n_head)?;
        if rwkv.n_head % n_head_kv != 0 {
            let expected = format!("a divisor of the {} heads", rwkv.n_head);
            return Err(keys.bad("attention.head_count_kv", n_head_kv, expected));
        }
        Ok(RwkvConfig {
            n_head_kv,
            mix_rank: keys.count("time_mix_extra_dim", 1..=MAX_DIM)?,
            decay_rank: keys.count("time_decay_extra_dim", 1..=MAX_DIM)?,
            halved_every: keys.count_or("rescale_every_n_layers", 0..=MAX_DIM, 0)? as usize,
            ..rwkv
        })
    }

    /// Sizes of RWKV 7.
    pub(crate) fn read_7(cfg: &Config, keys: &Keys<'_>) -> Result<RwkvConfig> {
        Ok(RwkvConfig {
            decay_rank: keys.count("attention.decay_lora_rank", 1..=MAX_DIM)?,
            rate_rank: keys.count("attention.iclr_lora_rank", 1..=MAX_DIM)?,
            value_rank: keys.count("attention.value_residual_mix_lora_rank", 1..=MAX_DIM)?,
            gate_rank: keys.count_or("attention.gate_lora_rank", 0..=MAX_DIM, 0)?,
            ..RwkvConfig::read_common(cfg, keys)?
        })
    }

    fn read_common(cfg: &Config, keys: &Keys<'_>) -> Result<RwkvConfig> {
        let head_dim = keys.count("wkv.head_size", 1..=cfg.n_embd)?;
        if !cfg.n_embd.is_multiple_of(head_dim) {
            return Err(keys.bad("wkv.head_size", head_dim, format!("a divisor of {} elements", cfg.n_embd)));
        }
        let n_head = cfg.n_embd / head_dim;
        Ok(RwkvConfig { head_dim, n_head, n_head_kv: n_head, ..RwkvConfig::default() })
    }

    /// Elements of the state of a layer: a matrix for each head.
    pub fn state_row(&self) -> u64 {
        self.head_dim * self.head_dim * self.n_head
    }
}
