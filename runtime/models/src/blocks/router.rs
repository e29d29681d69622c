//! Which experts a token goes through, and how much each counts.

use crate::builder::Builder;
use crate::config::{Gating, MoeConfig};
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Role, Tensor};

/// The experts of each token.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Which: [n_used, n_tokens].
    pub ids: Tensor,
    /// How much each counts: [1, n_used, n_tokens].
    pub weights: Tensor,
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
    if b.has("ffn_gate_tid2eid.weight") {
        return route_by_token(b, cfg, logits);
    }
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
        (Gating::RootOfSoftplus, _) => root_of_softplus(b, logits),
    };
    if let Some(bias) = bias {
        scores = b.g.add(scores, bias);
    }
    if has_groups {
        scores = of_best_groups(b, cfg, scores);
    }
    let ids = b.g.top_k(scores, cfg.n_used as u32);
    let ids = b.name(ids, "ffn_moe_topk");
    Ok(weighted(b, cfg, logits, ids))
}

/// Experts that a table has for each token (DeepSeek-V4), weighted by the router.
fn route_by_token(b: &mut Builder<'_>, cfg: &MoeConfig, logits: Tensor) -> Result<Route> {
    let dims = [cfg.n_used, b.cfg.n_vocab];
    let table = b.weight("ffn_gate_tid2eid.weight", &dims, Role::Embedding)?;
    let tokens = b.input(Input::Tokens);
    let ids = b.g.get_rows(table, tokens); // [n_used, n_tokens]
    let [ids] = if b.g.ne(ids)[1] == b.g.ne(logits)[1] { [ids] } else { b.keep_outputs([ids]) };
    Ok(weighted(b, cfg, logits, ids))
}

fn weighted(b: &mut Builder<'_>, cfg: &MoeConfig, logits: Tensor, ids: Tensor) -> Route {
    let logits = match cfg.gating {
        // Shares of roots are the softmax of their logarithms.
        Gating::RootOfSoftplus => {
            let roots = root_of_softplus(b, logits);
            b.g.log(roots)
        }
        _ => logits,
    };
    let weights = b.g.moe_weights(logits, ids, &cfg.weights_params());
    Route { ids, weights: b.name(weights, "ffn_moe_weights") }
}

/// √(log(1 + exp(x))).
fn root_of_softplus(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let x = b.g.softplus(x);
    b.g.sqrt(x)
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
