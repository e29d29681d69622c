//! Refact 1.6B (Small Magellanic Cloud AI 2023): ALiBi (arXiv 2108.12409) and multi-query attention (1911.02150).

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::None,
    config: |cfg, keys| {
        if let Some(moe) = &cfg.moe {
            let expected = "0: the architecture has no experts";
            return Err(keys.bad("expert_count", moe.n_expert, expected));
        }
        cfg.alibi_max_bias = 8.0;
        cfg.unused = &["attn_output.bias", "ffn_up.bias", "ffn_gate.bias", "ffn_down.bias"];
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu))
}
