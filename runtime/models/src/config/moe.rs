//! Experts: the `expert_*` keys.

use super::{Keys, LayerConfig, MAX_DIM};
use crate::error::Result;
use llmrt_abi::op::MoeWeightsParams;
use llmrt_graph::Activation;

/// The experts of a model's MoE layers.
#[derive(Clone, PartialEq, Debug)]
pub struct MoeConfig {
    /// Experts of each layer.
    pub n_expert: u64,
    /// Experts each token goes through.
    pub n_used: u64,
    /// Groups that the experts form.
    pub n_group: u64,
    /// Groups whose experts a token may go through; all of them: groups do not matter.
    pub n_group_used: u64,
    /// How the router's logits become weights.
    pub gating: Gating,
    /// Weights are divided by their sum.
    pub normalise: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// What the weights multiply.
    pub weighted: Weighted,
    /// What is between an expert's matrices.
    pub activation: ExpertActivation,
    /// Elements that experts take and give in place of a hidden state; 0: a hidden state.
    pub n_latent: u64,
    /// Elements between the matrices of the FFN that every token goes through beside its experts; 0: there is none.
    pub n_ff_shared: u64,
    /// What is between these matrices.
    pub glu_shared: Glu,
    /// The result of that FFN is multiplied by a sigmoid of its own.
    pub gates_shared: bool,
    /// Small experts that groups of experts share.
    pub by_group: SharedByGroup,
}

/// Small experts that groups of experts share (GroveMoE, arXiv 2508.07785).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SharedByGroup {
    /// Experts of a group; 0: there is nothing that groups share.
    pub n_each: u64,
    /// Elements between the matrices.
    pub n_ff: u64,
    /// Factor on the results.
    pub scale: f32,
}

/// How the router's logits become weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gating {
    /// Softmax over all experts.
    SoftMax,
    /// Each expert by itself.
    Sigmoid,
    /// Softmax over the experts that were chosen.
    SoftMaxOfChosen,
    /// The root of softplus, each expert by itself.
    RootOfSoftplus,
}

/// What the weights of a token's experts multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weighted {
    /// The experts' results.
    Outputs,
    /// What goes into the experts.
    Inputs,
}

/// What is between an expert's matrices.
#[derive(Clone, PartialEq, Debug)]
pub enum ExpertActivation {
    /// A gate and up, in one of these ways.
    Gated(Glu),
    /// max(up, 0)².
    ReluSquared,
}

/// What becomes of gate and up.
#[derive(Clone, PartialEq, Debug)]
pub enum Glu {
    /// activation(gate) · up.
    Plain(Activation),
    /// silu(min(gate, limit)) · up within ±limit, with a limit for each layer; 0: none.
    BoundedGate(Vec<f32>),
    /// min(silu(gate), limit) · up within ±limit, likewise.
    BoundedSilu(Vec<f32>),
    /// sigmoid(gate) · gate within ±beta · up within ±linear_beta, within by c · tanh(x / c); linear_beta 0: up as it is.
    SoftBounded {
        /// Bound of the gate.
        beta: f32,
        /// Bound of up.
        linear_beta: f32,
    },
    /// gpt-oss: both bounded, 1 added to up.
    Oai,
}

const MAX_EXPERTS: u64 = 1 << 16;

/// Far above every model.
pub(crate) const MAX_SHARED: u64 = 1 << 10;

impl MoeConfig {
    /// The keys; what architectures fix or leave out is for their own `config`: without a key softmax, and weights as they
    /// are. `None`: a dense model.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Option<MoeConfig>> {
        let n_expert = keys.count_or("expert_count", 0..=MAX_EXPERTS, 0)?;
        if n_expert == 0 {
            return Ok(None);
        }
        let (n_group, n_group_used) = read_groups(keys, n_expert)?;
        let moe = MoeConfig {
            n_expert,
            n_used: keys.count("expert_used_count", 1..=n_expert)?,
            n_group,
            n_group_used,
            gating: keys.gating(Gating::SoftMax)?,
            normalise: keys.optional("expert_weights_norm")?.unwrap_or(false),
            scale: keys.f32_or_zero("expert_weights_scale", 1.0)?,
            weighted: Weighted::Outputs,
            activation: ExpertActivation::Gated(Glu::Plain(Activation::Silu)),
            n_latent: keys.count_or("expert_latent_length", 0..=MAX_DIM, 0)?,
            n_ff_shared: keys.count_or("expert_shared_feed_forward_length", 0..=MAX_DIM, 0)?,
            glu_shared: Glu::Plain(Activation::Silu),
            gates_shared: false,
            by_group: SharedByGroup::default(),
        };
        if n_group_used < n_group && moe.n_used > n_expert / n_group * n_group_used {
            let found = format!("{} of {n_group_used} groups", moe.n_used);
            return Err(keys.bad("expert_used_count", found, "at most as many as the groups have experts"));
        }
        Ok(Some(moe))
    }

    /// Where files leave out how large the FFN is that every token goes through, it is so large.
    pub(crate) fn share(&mut self, n_ff: u64) {
        if self.n_ff_shared == 0 {
            self.n_ff_shared = n_ff;
        }
    }

    /// Attributes of the op that makes weights of logits.
    pub(crate) fn weights_params(&self) -> MoeWeightsParams {
        let gating = match self.gating {
            Gating::SoftMax => 0,
            Gating::Sigmoid => 1,
            Gating::SoftMaxOfChosen | Gating::RootOfSoftplus => 2,
        };
        MoeWeightsParams { gating, normalise: self.normalise.into(), scale: self.scale }
    }

    /// Which layers have experts, how large these are, and what is beside them.
    pub(super) fn read_layers(&mut self, keys: &Keys<'_>, layers: &mut [LayerConfig]) -> Result<()> {
        let n_ff: Vec<u64> = layers.iter().map(|layer| layer.n_ff).collect();
        let n_layer = layers.len();
        let n_dense = keys.count_or("leading_dense_block_count", 0..=n_layer as u64, 0)? as usize;
        let step = keys.count_or("interleave_moe_layer_step", 1..=u32::MAX.into(), 1)? as usize;
        let found = keys.per_layer("expert_feed_forward_length", n_layer, 0..=MAX_DIM, Some(&n_ff))?;
        for (il, layer) in layers.iter_mut().enumerate() {
            layer.is_moe = il >= n_dense && (il + 1) % step == 0;
            layer.n_ff_expert = if found[il] == 0 { layer.n_ff } else { found[il] };
        }
        let n_shared = keys.count_or("expert_shared_count", 0..=MAX_SHARED, 0)?;
        self.share(layers[0].n_ff_expert * n_shared);
        Ok(())
    }
}

/// Groups, and how many of them a token uses; without any they are one.
fn read_groups(keys: &Keys<'_>, n_expert: u64) -> Result<(u64, u64)> {
    let n_group = keys.count_or("expert_group_count", 1..=n_expert, 1)?;
    let n_used = keys.count_or("expert_group_used_count", 1..=n_group, n_group)?;
    // A group counts by its two best experts.
    if n_group > 1 && (!n_expert.is_multiple_of(n_group) || n_expert < 2 * n_group) {
        return Err(keys.bad(
            "expert_group_count",
            n_group,
            format!("groups of 2 or more of {n_expert} experts"),
        ));
    }
    Ok((n_group, n_used))
}

impl Keys<'_> {
    /// How logits become weights, where files may leave it out.
    pub(crate) fn gating(&self, default: Gating) -> Result<Gating> {
        Ok(match self.count_or("expert_gating_func", 1..=4, 0)? {
            0 => default,
            1 => Gating::SoftMax,
            2 => Gating::Sigmoid,
            3 => Gating::SoftMaxOfChosen,
            _ => Gating::RootOfSoftplus,
        })
    }
}
