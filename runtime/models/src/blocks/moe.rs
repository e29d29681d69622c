//! Mixture of experts: each token goes through the few experts its router likes best.

use crate::builder::Builder;
use crate::config::{Gating, MoeConfig};
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_abi::op::MoeWeightsParams;
use llmrt_graph::{Activation, Role, Tensor};

/// Σ over used experts of weight · down(activation(gate(x)) · up(x)): [n_embd, n_tokens]. Gate and up are two tensors, or
/// one with gate's rows first.
pub(crate) fn moe(b: &mut Builder<'_>, cfg: &MoeConfig, activation: Activation, x: Tensor) -> Result<Tensor> {
    let [n_embd, n_tokens, ..] = b.g.ne(x);
    let n_ff = b.layer().n_ff;
    let (ids, weights) = route(b, cfg, x)?;

    let x = b.g.reshape(x, &[n_embd, 1, n_tokens]);
    let h = match b.has("ffn_gate_up_exps.weight") {
        true => {
            let gate_up = experts(b, cfg, "ffn_gate_up_exps", 2 * n_ff, x, ids)?;
            let gate_up = b.name(gate_up, "ffn_moe_gate_up");
            b.g.glu(activation, gate_up, None)
        }
        false => {
            let up = experts(b, cfg, "ffn_up_exps", n_ff, x, ids)?; // [n_ff, n_used, n_tokens]
            let up = b.name(up, "ffn_moe_up");
            let gate = experts(b, cfg, "ffn_gate_exps", n_ff, x, ids)?;
            let gate = b.name(gate, "ffn_moe_gate");
            b.g.glu(activation, gate, Some(up))
        }
    };
    let y = experts(b, cfg, "ffn_down_exps", n_embd, h, ids)?; // [n_embd, n_used, n_tokens]
    let y = b.name(y, "ffn_moe_down");
    let y = b.g.mul(y, weights);
    let y = b.name(y, "ffn_moe_weighted");

    let y = sum_used(b, y); // [n_embd, n_tokens]
    Ok(b.name(y, "ffn_moe_out"))
}

/// Each token's experts [n_used, n_tokens] and their weights [1, n_used, n_tokens]. Where the file has a bias for the
/// choice (DeepSeek-V3, arXiv 2412.19437), weights are without it.
fn route(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor) -> Result<(Tensor, Tensor)> {
    let router = b.weight("ffn_gate_inp.weight", &[b.g.ne(x)[0], cfg.n_expert], Role::Matrix)?;
    let logits = b.g.mul_mat(router, x); // [n_expert, n_tokens]
    let logits = b.name(logits, "ffn_moe_logits");
    let chosen_by = match b.optional("exp_probs_b.bias", &[cfg.n_expert], Role::Bias)? {
        None => logits,
        Some(bias) => {
            let probs = match cfg.gating {
                Gating::SoftMax => b.g.soft_max(logits, None, 1.0),
                Gating::Sigmoid => b.g.sigmoid(logits),
            };
            b.g.add(probs, bias)
        }
    };
    let ids = b.g.top_k(chosen_by, cfg.n_used as u32);
    let ids = b.name(ids, "ffn_moe_topk");
    let gating = match cfg.gating {
        Gating::SoftMax => 0,
        Gating::Sigmoid => 1,
    };
    let params = MoeWeightsParams { gating, normalise: cfg.normalise.into(), scale: cfg.scale };
    let weights = b.g.moe_weights(logits, ids, &params);
    Ok((ids, b.name(weights, "ffn_moe_weights")))
}

/// Each token's row through its experts, times the experts' scales (one number each) if the file has them and
/// they count.
fn experts(
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
    let counts = b.cfg.ffn_scales || b.g.def(w).dtype == DType::NVFP4;
    let scales = b.optional(&format!("{name}.scale"), &[n_expert], Role::Other)?;
    let Some(scales) = scales.filter(|_| counts) else { return Ok(y) };

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
