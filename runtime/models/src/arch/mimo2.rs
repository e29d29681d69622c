//! MiMo V2 (arXiv 2601.02780): layers with a sliding window have sinks and more KV heads; a factor on what attention gives;
//! experts in all but the first layers.

use super::Arch;
use crate::blocks::{decoder, experts_if_routed, pre_norm, self_attention};
use crate::builder::Builder;
use crate::config::{AllBut, Gating, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.read_windows(keys, 128, AllBut::LastOf(6))?;
        cfg.rope.windowed = cfg.rope.unstretched(cfg.rope.windowed.freq_base);
        cfg.unused =
            &["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_q.scale", "attn_k.scale", "attn_v.scale"];
        cfg.value_scale = keys.f32_or_zero("attention.value_scale", 1.0)?;
        let moe = cfg.experts(keys)?;
        (moe.gating, moe.normalise) = (Gating::Sigmoid, true);
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, scaled_attention, experts_if_routed)),
};

fn scaled_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let heads = self_attention(b, x)?;
    Ok(match b.cfg.value_scale {
        1.0 => heads,
        scale => b.g.scale(heads, scale),
    })
}
