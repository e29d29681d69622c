//! Laguna (poolside 2026): heads of Q and K are normed; a gate for each head, or each element, of what attention gives; in some
//! models three layers of four have a sliding window and a rotation of their own; experts after the first layers.

use super::Arch;
use crate::blocks::{decoder, normed_attention, pre_norm, swiglu_or_experts, times_each_head};
use crate::builder::Builder;
use crate::config::{AllBut, Config, Gating, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config,
    graph: |b| decoder(b, |b, x| pre_norm(b, x, gated_attention, swiglu_or_experts)),
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.read_windows(keys, 0, AllBut::FirstOf(4))?;
    cfg.rope.windowed = cfg.rope.plain(cfg.rope.windowed.freq_base);
    cfg.rope.set_windowed_dims(keys, cfg.head_dim_k)?;

    cfg.unused = &["attn_gate.scale", "rope_freqs.weight"];
    let n_ff_expert = cfg.layers[0].n_ff_expert;
    let moe = cfg.experts(keys)?;
    moe.gating = keys.gating(Gating::Sigmoid)?;
    moe.share(n_ff_expert);
    Ok(())
}

/// Heads times softplus(gate(x)).
fn gated_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let heads = normed_attention(b, x)?; // [head_dim * n_head, n_tokens]
    let (n, n_head) = (b.g.ne(heads)[0], b.layer().n_head);
    let per_head = b.dims("attn_gate.weight").is_some_and(|dims| dims[1] == n_head);
    let gate = b.linear("attn_gate", if per_head { n_head } else { n }, x)?;
    let gate = b.g.softplus(gate);
    Ok(if per_head { times_each_head(b, heads, gate) } else { b.g.mul(heads, gate) })
}
