//! BitNet b1.58 (arXiv 2402.17764): matrices of three values, each with a scale; what the last matrices of attention and of the
//! FFN take is normed.

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, _| {
        cfg.ffn_scales = true;
        cfg.unused = &["output.weight", "rope_freqs.weight"];
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, attention, ffn)),
};

fn attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let heads = self_attention(b, x)?; // [head_dim * n_head, n_tokens]
    b.norm("attn_sub_norm", heads)
}

fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let n_ff = b.layer().n_ff;
    let up = b.ffn_linear("ffn_up", n_ff, x)?;
    let gate = b.ffn_linear("ffn_gate", n_ff, x)?;
    let h = b.g.glu(Activation::Silu, gate, Some(up)); // [n_ff, n]
    let h = b.norm("ffn_sub_norm", h)?;
    b.ffn_linear("ffn_down", b.cfg.n_embd, h)
}
