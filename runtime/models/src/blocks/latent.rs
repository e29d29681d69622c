//! Experts that work on fewer elements than a hidden state has, between a matrix down and one up (Nemotron 3, Kimi K3).

use super::experts::{Bank, experts};
use super::router::Route;
use crate::builder::Builder;
use crate::config::MoeConfig;
use crate::error::Result;
use llmrt_graph::Tensor;

/// As `experts`, on so many elements as the file has matrices for: [n_embd, n_tokens].
pub(super) fn latent_experts(
    b: &mut Builder<'_>,
    cfg: &MoeConfig,
    bank: &Bank,
    x: Tensor,
    route: Route,
) -> Result<Tensor> {
    let names = ["ffn_latent", "ffn_routed"];
    let Some(name) = names.into_iter().find(|name| b.has(&format!("{name}_down.weight"))) else {
        return experts(b, cfg, bank, x, route);
    };
    let low = b.matmul(&format!("{name}_down"), cfg.n_latent, x)?; // [n_latent, n_tokens]
    let y = experts(b, cfg, bank, low, route)?;
    let y = match b.has(&format!("{name}_norm.weight")) {
        true => b.norm(&format!("{name}_norm"), y)?,
        false => y,
    };
    b.matmul(&format!("{name}_up"), b.cfg.n_embd, y)
}
