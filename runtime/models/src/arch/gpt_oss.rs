//! gpt-oss (arXiv 2508.10925): sinks in attention, every second layer with a sliding window; experts with biases, whose gates
//! are bounded; softmax over the chosen ones.

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu_or_experts};
use crate::config::{AllBut, ExpertActivation, Gating, Glu, Norm, RopeKind};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.read_windows(keys, 128, AllBut::LastOf(2))?;
        cfg.ffn_norm = "post_attention_norm";
        let moe = cfg.experts(keys)?;
        (moe.gating, moe.normalise) = (Gating::SoftMaxOfChosen, false);
        moe.activation = ExpertActivation::Gated(Glu::Oai);
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu_or_experts)),
};
