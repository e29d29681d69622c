//! Mixture of experts: each token goes through the few experts its router likes best, and through what all share.

use super::ffn::ffn_gated;
use crate::builder::Builder;
use crate::config::{ExpertActivation, Gating, Glu, MoeConfig, Weighted};
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_abi::op::MoeWeightsParams;
use llmrt_graph::{Activation, Role, Tensor};

/// The experts of each token.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Which: [n_used, n_tokens].
    pub ids: Tensor,
    /// How much each counts: [1, n_used, n_tokens].
    pub weights: Tensor,
}

/// The layer's FFN, experts in layers that have some: [n_embd, n_tokens].
pub(crate) fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match &b.cfg.moe {
        Some(cfg) if b.layer().is_moe => moe(b, cfg, x),
        _ => ffn_gated(b, Activation::Silu, x),
    }
}

/// Each token's experts, plus what all tokens go through, if there is something.
pub(crate) fn moe(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor) -> Result<Tensor> {
    let logits = router_logits(b, cfg, x)?; // [n_expert, n_tokens]
    let route = route(b, cfg, logits)?;
    let chosen = experts(b, cfg, x, route)?; // [n_embd, n_tokens]
    if cfg.n_ff_shared == 0 {
        return Ok(chosen);
    }
    let shared = shared(b, cfg, x)?;
    Ok(b.add("ffn_out", chosen, shared))
}

/// How well each expert suits each token: [n_expert, n_tokens].
pub(crate) fn router_logits(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor) -> Result<Tensor> {
    let router = b.weight("ffn_gate_inp.weight", &[b.g.ne(x)[0], cfg.n_expert], Role::Matrix)?;
    let logits = b.g.mul_mat(router, x);
    let logits = match b.optional("ffn_gate_inp.bias", &[cfg.n_expert], Role::Bias)? {
        Some(bias) => b.g.add(logits, bias),
        None => logits,
    };
    Ok(b.name(logits, "ffn_moe_logits"))
}

/// Each token's experts. Where the file has a bias for the choice (DeepSeek-V3, arXiv 2412.19437), weights are without
/// it.
pub(crate) fn route(b: &mut Builder<'_>, cfg: &MoeConfig, logits: Tensor) -> Result<Route> {
    let bias = match b.has("exp_probs_b.bias") {
        true => b.optional("exp_probs_b.bias", &[cfg.n_expert], Role::Bias)?,
        false => b.optional("exp_probs_b", &[cfg.n_expert], Role::Bias)?,
    };
    let has_groups = cfg.n_group_used < cfg.n_group;
    let mut scores = match (cfg.gating, bias.is_some() || has_groups) {
        // The order of logits is that of probabilities.
        (_, false) | (Gating::SoftMaxOfChosen, _) => logits,
        (Gating::SoftMax, _) => b.g.soft_max(logits, None, 1.0),
        (Gating::Sigmoid, _) => b.g.sigmoid(logits),
    };
    if let Some(bias) = bias {
        scores = b.g.add(scores, bias);
    }
    if has_groups {
        scores = of_best_groups(b, cfg, scores);
    }
    let ids = b.g.top_k(scores, cfg.n_used as u32);
    let ids = b.name(ids, "ffn_moe_topk");
    let gating = match cfg.gating {
        Gating::SoftMax => 0,
        Gating::Sigmoid => 1,
        Gating::SoftMaxOfChosen => 2,
    };
    let params = MoeWeightsParams { gating, normalise: cfg.normalise.into(), scale: cfg.scale };
    let weights = b.g.moe_weights(logits, ids, &params);
    Ok(Route { ids, weights: b.name(weights, "ffn_moe_weights") })
}

/// `scores` [n_expert, n_tokens], -∞ but in the groups that count most. A group counts as much as its two best experts.
fn of_best_groups(b: &mut Builder<'_>, cfg: &MoeConfig, scores: Tensor) -> Tensor {
    let n_tokens = b.g.ne(scores)[1];
    let (n_group, n_each) = (cfg.n_group, cfg.n_expert / cfg.n_group);
    let groups = b.g.reshape(scores, &[n_each, n_group, n_tokens]);
    let best_two = b.g.top_k(groups, 2); // [2, n_group, n_tokens]
    let singles = b.g.reshape(scores, &[1, n_each, n_group, n_tokens]);
    let best_two = b.g.get_rows(singles, best_two); // [1, 2, n_group, n_tokens]
    let best_two = b.g.reshape(best_two, &[2, n_group, n_tokens]);
    let sums = b.g.sum_rows(best_two); // [1, n_group, n_tokens]
    let sums = b.g.reshape(sums, &[n_group, n_tokens]);
    let ids = b.g.top_k(sums, cfg.n_group_used as u32); // [n_group_used, n_tokens]
    let ids = b.name(ids, "ffn_moe_group_topk");

    let best = b.g.get_rows(groups, ids); // [n_each, n_group_used, n_tokens]
    let none = b.g.fill(groups, f32::NEG_INFINITY);
    let masked = b.g.set_rows(none, best, ids);
    b.g.reshape(masked, &[cfg.n_expert, n_tokens])
}

/// Σ over used experts of weight · down(activation(gate(x), up(x))): [n_embd, n_tokens].
pub(crate) fn experts(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor, route: Route) -> Result<Tensor> {
    let [n_embd, n_tokens, ..] = b.g.ne(x);
    let x = b.g.reshape(x, &[n_embd, 1, n_tokens]);
    let x = match cfg.weighted {
        Weighted::Outputs => x,
        Weighted::Inputs => {
            let copies = b.g.repeat(x, &[n_embd, cfg.n_used, n_tokens]);
            b.g.mul(copies, route.weights)
        }
    };
    let h = hidden(b, cfg, x, route.ids)?; // [n_ff, n_used, n_tokens]
    let y = product(b, cfg, "ffn_down_exps", n_embd, h, route.ids)?; // [n_embd, n_used, n_tokens]
    let y = b.name(y, "ffn_moe_down");
    let y = match cfg.weighted {
        Weighted::Outputs => b.g.mul(y, route.weights),
        Weighted::Inputs => y,
    };
    let y = b.name(y, "ffn_moe_weighted");

    let y = sum_used(b, y); // [n_embd, n_tokens]
    Ok(b.name(y, "ffn_moe_out"))
}

/// What an expert's last matrix takes.
fn hidden(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor, ids: Tensor) -> Result<Tensor> {
    let ExpertActivation::Gated(glu) = &cfg.activation else {
        let up = product(b, cfg, "ffn_up_exps", b.layer().n_ff_expert, x, ids)?; // [n_ff, n_used, n_tokens]
        let h = b.g.relu(up);
        return Ok(b.g.sqr(h));
    };
    let (gate, up) = gate_and_up(b, cfg, x, ids)?;
    Ok(match glu {
        Glu::Plain(activation) => b.g.glu(*activation, gate, up),
        Glu::Clamped(limits) => clamped(b, limits.get(b.il()).copied(), gate, up),
        Glu::Oai => b.g.swiglu_oai(gate, up, OAI_ALPHA, OAI_LIMIT),
    })
}

/// gpt-oss (arXiv 2508.10925): the factor in the gate's sigmoid, and the bounds.
const OAI_ALPHA: f32 = 1.702;
const OAI_LIMIT: f32 = 7.0;

/// Gate and up of each token's experts, [n_ff, n_used, n_tokens]; or one tensor with gate's rows first.
fn gate_and_up(
    b: &mut Builder<'_>,
    cfg: &MoeConfig,
    x: Tensor,
    ids: Tensor,
) -> Result<(Tensor, Option<Tensor>)> {
    let n_ff = b.layer().n_ff_expert;
    if b.has("ffn_gate_up_exps.weight") {
        let gate_up = product(b, cfg, "ffn_gate_up_exps", 2 * n_ff, x, ids)?;
        return Ok((b.name(gate_up, "ffn_moe_gate_up"), None));
    }
    let up = product(b, cfg, "ffn_up_exps", n_ff, x, ids)?;
    let up = b.name(up, "ffn_moe_up");
    let gate = product(b, cfg, "ffn_gate_exps", n_ff, x, ids)?;
    Ok((b.name(gate, "ffn_moe_gate"), Some(up)))
}

/// silu(min(gate, limit)) · up within ±limit.
fn clamped(b: &mut Builder<'_>, limit: Option<f32>, gate: Tensor, up: Option<Tensor>) -> Tensor {
    let Some(limit) = limit.filter(|&limit| limit > 0.0) else {
        return b.g.glu(Activation::Silu, gate, up);
    };
    let n_ff = b.layer().n_ff_expert;
    let (gate, up) = match up {
        Some(up) => (gate, up),
        None => (b.g.slice(gate, 0, 0, n_ff), b.g.slice(gate, 0, n_ff, n_ff)),
    };
    let gate = b.g.clamp(gate, f32::NEG_INFINITY, limit);
    let up = b.g.clamp(up, -limit, limit);
    b.g.glu(Activation::Silu, gate, Some(up))
}

/// The FFN that all tokens go through.
fn shared(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor) -> Result<Tensor> {
    let up = b.ffn_linear("ffn_up_shexp", cfg.n_ff_shared, x)?;
    let gate = b.ffn_linear("ffn_gate_shexp", cfg.n_ff_shared, x)?;
    let h = b.g.glu(Activation::Silu, gate, Some(up)); // [n_ff_shared, n]
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

/// Each token's row through its experts, times the experts' scales (one number each) if the file has them and they count,
/// plus their biases.
fn product(
    b: &mut Builder<'_>,
    cfg: &MoeConfig,
    name: &str,
    n_out: u64,
    x: Tensor,
    ids: Tensor,
) -> Result<Tensor> {
    let n_expert = cfg.n_expert;
    let dims = [b.g.ne(x)[0], n_out, n_expert];
    let w = b.weight(&format!("{name}.weight"), &dims, Role::Experts)?;
    let y = b.g.mul_mat_id(w, x, ids); // [n_out, n_used, n_tokens]
    // As in `ffn_linear`.
    let y = match b.cfg.ffn_scales || b.g.def(w).dtype == DType::NVFP4 {
        true => times_scales(b, name, y, ids)?,
        false => y,
    };
    let bias = b.optional(&format!("{name}.bias"), &[n_out, n_expert], Role::Bias)?;
    Ok(bias.map_or(y, |bias| b.g.add_id(y, bias, ids)))
}

/// Rows [n, n_used, n_tokens], each times its expert's scale, if the file has scales.
fn times_scales(b: &mut Builder<'_>, name: &str, y: Tensor, ids: Tensor) -> Result<Tensor> {
    let n_expert = b.cfg.moe.as_ref().map_or(0, |moe| moe.n_expert);
    let Some(scales) = b.optional(&format!("{name}.scale"), &[n_expert], Role::Other)? else { return Ok(y) };
    let [n_used, n_tokens, ..] = b.g.ne(ids);
    let table = b.g.reshape(scales, &[1, n_expert]);
    let ids = b.g.reshape(ids, &[n_used * n_tokens]);
    let scale = b.g.get_rows(table, ids);
    let scale = b.g.reshape(scale, &[1, n_used, n_tokens]);
    Ok(b.g.mul(y, scale))
}

/// [n, n_used, n_tokens] to [n, n_tokens].
fn sum_used(b: &mut Builder<'_>, y: Tensor) -> Tensor {
    let ([n, n_used, n_tokens, _], nb) = (b.g.ne(y), b.g.def(y).nb);
    let mut one = |i| b.g.view(y, [n, n_tokens, 1, 1], [nb[0], nb[2], nb[3], nb[3]], i * nb[1]);
    let parts: Vec<Tensor> = (0..n_used).map(&mut one).collect();
    match parts[..] {
        [only] => b.g.cont(only),
        _ => parts.into_iter().reduce(|sum, part| b.g.add(sum, part)).unwrap_or(y),
    }
}
