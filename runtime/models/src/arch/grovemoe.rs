//! GroveMoE (arXiv 2508.07785): experts in groups, each with one small expert more, which all of its group share and which
//! works on what the chosen experts give.

use super::Arch;
use crate::blocks::{
    Bank, Route, decoder, experts, normed_attention, pre_norm, route, router_logits, swiglu,
};
use crate::builder::Builder;
use crate::config::{Config, Keys, MAX_DIM, Norm, RopeKind, SharedByGroup};
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config,
    graph: |b| decoder(b, |b, x| pre_norm(b, x, normed_attention, experts_and_groups)),
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let head_dim = cfg.head_dim_k;
    let moe = cfg.experts(keys)?;
    let n_each = keys.count("experts_per_group", 1..=moe.n_expert)?;
    if moe.n_expert % n_each != 0 {
        return Err(keys.bad("experts_per_group", n_each, format!("a divisor of {} experts", moe.n_expert)));
    }
    moe.normalise = true;
    moe.by_group = SharedByGroup {
        n_each,
        n_ff: keys.count_or("expert_chunk_feed_forward_length", 1..=MAX_DIM, head_dim)?,
        scale: keys.f32_or_zero("expert_group_scale", 1.0)?,
    };
    Ok(())
}

fn experts_and_groups(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let Some(cfg) = &b.cfg.moe else { return swiglu(b, x) };
    let logits = router_logits(b, cfg, x)?; // [n_expert, n_tokens]
    let chosen = route(b, cfg, logits)?;
    let bank = Bank::of_layer(b, cfg);
    let y = experts(b, cfg, &bank, x, chosen)?; // [n_embd, n_tokens]

    let groups = groups(b, chosen.ids, cfg.by_group.n_each);
    let weights = b.g.moe_weights(logits, groups, &cfg.weights_params());
    let shared =
        Bank { suffix: "chexps", n_expert: cfg.n_expert / cfg.by_group.n_each, n_ff: cfg.by_group.n_ff };
    let of_groups = experts(b, cfg, &shared, y, Route { ids: groups, weights })?;
    let of_groups = b.g.scale(of_groups, cfg.by_group.scale);
    Ok(b.add("ffn_out", y, of_groups))
}

/// ids / n, of integers.
fn groups(b: &mut Builder<'_>, ids: Tensor, n: u64) -> Tensor {
    if n == 1 {
        return ids;
    }
    let share = (n as f32).recip();
    let ids = b.g.cast(ids, DType::F32);
    // A half more, so that rounding gives no group less.
    let groups = b.g.scale_bias(ids, share, 0.5 * share);
    b.g.cast(groups, DType::I32)
}
