//! Experts at work: each token's row through the matrices of those that it was routed to.

use super::ffn::relu_squared;
use super::glu::glu;
use super::router::Route;
use crate::builder::Builder;
use crate::config::{ExpertActivation, MoeConfig, Weighted};
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_graph::{Role, Tensor};

/// The matrices of experts.
pub(crate) struct Bank {
    /// The end of their names.
    pub suffix: &'static str,
    /// How many experts.
    pub n_expert: u64,
    /// Elements between an expert's matrices.
    pub n_ff: u64,
}

impl Bank {
    /// The experts that the router of the layer at hand chooses from.
    pub(crate) fn of_layer(b: &Builder<'_>, cfg: &MoeConfig) -> Bank {
        Bank { suffix: "exps", n_expert: cfg.n_expert, n_ff: b.layer().n_ff_expert }
    }
}

/// Σ over a token's experts of weight · down(activation(gate(x), up(x))): [n_embd, n_tokens].
pub(crate) fn experts(
    b: &mut Builder<'_>,
    cfg: &MoeConfig,
    bank: &Bank,
    x: Tensor,
    route: Route,
) -> Result<Tensor> {
    let [n_embd, n_tokens, ..] = b.g.ne(x);
    let x = b.g.reshape(x, &[n_embd, 1, n_tokens]);
    let x = match cfg.weighted {
        Weighted::Outputs => x,
        Weighted::Inputs => {
            let copies = b.g.repeat(x, &[n_embd, cfg.n_used, n_tokens]);
            b.g.mul(copies, route.weights)
        }
    };
    let h = hidden(b, cfg, bank, x, route.ids)?; // [n_ff, n_used, n_tokens]
    let y = product(b, bank, "ffn_down", n_embd, h, route.ids)?; // [n_embd, n_used, n_tokens]
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
fn hidden(b: &mut Builder<'_>, cfg: &MoeConfig, bank: &Bank, x: Tensor, ids: Tensor) -> Result<Tensor> {
    if let ExpertActivation::Gated(kind) = &cfg.activation {
        let (gate, up) = gate_and_up(b, bank, x, ids)?;
        return Ok(glu(b, kind, gate, up));
    }
    let up = product(b, bank, "ffn_up", bank.n_ff, x, ids)?; // [n_ff, n_used, n_tokens]
    Ok(match cfg.activation {
        ExpertActivation::Plain(activation) => b.g.activation(activation, up),
        _ => relu_squared(b, up),
    })
}

/// Gate and up of each token's experts, [n_ff, n_used, n_tokens]; or one tensor with gate's rows first.
fn gate_and_up(b: &mut Builder<'_>, bank: &Bank, x: Tensor, ids: Tensor) -> Result<(Tensor, Option<Tensor>)> {
    if b.has(&format!("ffn_gate_up_{}.weight", bank.suffix)) {
        let gate_up = product(b, bank, "ffn_gate_up", 2 * bank.n_ff, x, ids)?;
        return Ok((b.name(gate_up, "ffn_moe_gate_up"), None));
    }
    let up = product(b, bank, "ffn_up", bank.n_ff, x, ids)?;
    let up = b.name(up, "ffn_moe_up");
    let gate = product(b, bank, "ffn_gate", bank.n_ff, x, ids)?;
    Ok((b.name(gate, "ffn_moe_gate"), Some(up)))
}

/// Each token's row through its experts, times the experts' scales (one number each) if the file has them and they count,
/// plus their biases.
fn product(
    b: &mut Builder<'_>,
    bank: &Bank,
    name: &str,
    n_out: u64,
    x: Tensor,
    ids: Tensor,
) -> Result<Tensor> {
    let (name, n_expert) = (format!("{name}_{}", bank.suffix), bank.n_expert);
    let dims = [b.g.ne(x)[0], n_out, n_expert];
    let w = b.weight(&format!("{name}.weight"), &dims, Role::Experts)?;
    let y = b.g.mul_mat_id(w, x, ids); // [n_out, n_used, n_tokens]
    // As in `ffn_linear`.
    let y = match b.cfg.ffn_scales || b.g.def(w).dtype == DType::NVFP4 {
        true => times_scales(b, &name, n_expert, y, ids)?,
        false => y,
    };
    let bias = b.optional(&format!("{name}.bias"), &[n_out, n_expert], Role::Bias)?;
    Ok(bias.map_or(y, |bias| b.g.add_id(y, bias, ids)))
}

/// Rows [n, n_used, n_tokens], each times its expert's scale, if the file has scales.
fn times_scales(b: &mut Builder<'_>, name: &str, n_expert: u64, y: Tensor, ids: Tensor) -> Result<Tensor> {
    let Some(scales) = b.optional(&format!("{name}.scale"), &[n_expert], Role::Other)? else { return Ok(y) };
    let [n_used, n_tokens, ..] = b.g.ne(ids);
    let table = b.g.reshape(scales, &[1, n_expert]);
    let ids = b.g.reshape(ids, &[n_used * n_tokens]);
    let scale = b.g.get_rows(table, ids);
    let scale = b.g.reshape(scale, &[1, n_used, n_tokens]);
    Ok(b.g.mul(y, scale))
}

/// [n, n_used, n_tokens] to [n, n_tokens].
pub(crate) fn sum_used(b: &mut Builder<'_>, y: Tensor) -> Tensor {
    let ([n, n_used, n_tokens, _], nb) = (b.g.ne(y), b.g.def(y).nb);
    let mut one = |i| b.g.view(y, [n, n_tokens, 1, 1], [nb[0], nb[2], nb[3], nb[3]], i * nb[1]);
    let parts: Vec<Tensor> = (0..n_used).map(&mut one).collect();
    match parts[..] {
        [only] => b.g.cont(only),
        _ => parts.into_iter().reduce(|sum, part| b.g.add(sum, part)).unwrap_or(y),
    }
}
