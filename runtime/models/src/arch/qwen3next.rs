//! Qwen3-Next (Qwen, 2025) and Qwen 3.5 (2026): gated delta networks in most layers, attention with gated results in the
//! others; dense or with experts beside a gated FFN that all tokens go through.

use super::Arch;
use crate::blocks::{decoder, delta_net_mixer, gated_attention, hybrid, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const QWEN3_NEXT: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.unused = &["attn_qkv.scale", "attn_gate.scale", "ssm_out.scale", "ssm_in.scale"];
        config(cfg, keys)
    },
    graph,
};

/// Positions of text are the same in all sections of its rotation.
pub(super) const QWEN3_5: Arch = Arch { config, ..QWEN3_NEXT };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    if cfg.ssm.n_inner != cfg.ssm.n_head * cfg.ssm.n_state {
        let expected = format!("{} heads of {}", cfg.ssm.n_head, cfg.ssm.n_state);
        return Err(keys.bad("ssm.inner_size", cfg.ssm.n_inner, expected));
    }
    let is_recurrent = SsmConfig::read_recurrent_layers(keys, cfg.n_layer, 4)?;
    cfg.set_recurrent(|il| is_recurrent[il]);
    cfg.ffn_scales = true;
    cfg.ffn_norm = "post_attention_norm";
    if let Some(moe) = &mut cfg.moe {
        (moe.normalise, moe.gates_shared) = (true, true);
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| {
        let recurrence = |b: &mut Builder<'_>, h, x| delta_net_mixer(b, h, x, Activation::Silu);
        hybrid(b, x, recurrence, |b, h, x| gated_attention(b, h, x, None), swiglu_or_experts)
    })
}
