//! Experts: the `expert_*` keys.

use super::Keys;
use crate::error::Result;

/// The experts of a model's MoE layers.
#[derive(Clone, PartialEq, Debug)]
pub struct MoeConfig {
    /// Experts of each layer.
    pub n_expert: u64,
    /// Experts each token goes through.
    pub n_used: u64,
    /// How the router's logits become weights.
    pub gating: Gating,
    /// Weights are divided by their sum.
    pub normalise: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// Elements between the matrices of the FFN that every token goes through beside its experts; 0: there is none.
    pub n_ff_shared: u64,
}

/// How the router's logits become weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gating {
    /// Softmax over all experts.
    SoftMax,
    /// Each expert by itself.
    Sigmoid,
}

const MAX_EXPERTS: u64 = 1 << 16;

impl MoeConfig {
    /// Softmax, divided by its sum, and no shared experts, unless the architecture's own `config` changes that. `None`: a
    /// dense model.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Option<MoeConfig>> {
        let n_expert = keys.count_or("expert_count", 0..=MAX_EXPERTS, 0)?;
        if n_expert == 0 {
            return Ok(None);
        }
        Ok(Some(MoeConfig {
            n_expert,
            n_used: keys.count("expert_used_count", 1..=n_expert)?,
            gating: Gating::SoftMax,
            normalise: true,
            scale: keys.f32_or_zero("expert_weights_scale", 1.0)?,
            n_ff_shared: 0,
        }))
    }
}
