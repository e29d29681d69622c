//! Mixture of experts: each token goes through the few experts its router likes best, and through what all share.

use super::experts::Bank;
use super::ffn::{relu_squared, swiglu};
use super::glu::glu;
use super::latent::latent_experts;
use super::router::{route, router_logits};
use crate::builder::Builder;
use crate::config::{ExpertActivation, MoeConfig};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// As `swiglu_or_experts`, of models whose metadata have no count of dense layers: layers with a router have experts.
pub(crate) fn experts_if_routed(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match b.has("ffn_gate_inp.weight") {
        true => moe(b, x),
        false => swiglu(b, x),
    }
}

/// Each token's experts, plus what all tokens go through, if there is something: [n_embd, n_tokens]. A dense FFN in models
/// without experts.
pub(crate) fn moe(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let Some(cfg) = &b.cfg.moe else { return swiglu(b, x) };
    let logits = router_logits(b, cfg, x)?; // [n_expert, n_tokens]
    let route = route(b, cfg, logits)?;
    let bank = Bank::of_layer(b, cfg);
    let chosen = latent_experts(b, cfg, &bank, x, route)?;
    if cfg.n_ff_shared == 0 {
        return Ok(chosen);
    }
    let shared = shared(b, cfg, x)?;
    Ok(b.add("ffn_out", chosen, shared))
}

/// As `swiglu_or_experts`, of models whose dense FFNs have the activation of the FFN beside experts.
pub(crate) fn dense_or_experts(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match b.layer().is_moe {
        true => moe(b, x),
        false => dense(b, x),
    }
}

/// As `dense_or_experts`, of models whose metadata have no count of dense layers: layers with a router have experts.
pub(crate) fn dense_or_routed(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match b.has("ffn_gate_inp.weight") {
        true => moe(b, x),
        false => dense(b, x),
    }
}

fn dense(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let Some(cfg) = &b.cfg.moe else { return swiglu(b, x) };
    let h = hidden(b, cfg, ["ffn_gate", "ffn_up"], b.layer().n_ff, x)?;
    let y = b.ffn_linear("ffn_down", b.cfg.n_embd, h)?;
    Ok(b.name(y, "ffn_out"))
}

/// What the last matrix of an FFN takes that all tokens go through: [n_ff, n].
fn hidden(b: &mut Builder<'_>, cfg: &MoeConfig, names: [&str; 2], n_ff: u64, x: Tensor) -> Result<Tensor> {
    let up = b.ffn_linear(names[1], n_ff, x)?;
    if cfg.activation == ExpertActivation::ReluSquared {
        return Ok(relu_squared(b, up));
    }
    let gate = b.ffn_linear(names[0], n_ff, x)?;
    Ok(glu(b, &cfg.glu_shared, gate, Some(up)))
}

/// The FFN that all tokens go through.
fn shared(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor) -> Result<Tensor> {
    let h = hidden(b, cfg, ["ffn_gate_shexp", "ffn_up_shexp"], cfg.n_ff_shared, x)?; // [n_ff_shared, n]
    let y = b.ffn_linear("ffn_down_shexp", b.cfg.n_embd, h)?;
    if !cfg.gates_shared {
        return Ok(y);
    }
    let gate = b.weight("ffn_gate_inp_shexp.weight", &[b.cfg.n_embd, 1], Role::Matrix)?;
    let gate = b.g.mul_mat(gate, x); // [1, n]
    let gate = b.g.sigmoid(gate);
    let y = b.g.mul(y, gate);
    Ok(b.name(y, "ffn_shexp_gated"))
}
