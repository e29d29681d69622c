//! Apertus (arXiv 2509.14233): heads of Q and K are normed before they are rotated; an FFN without a gate, whose activation
//! has numbers of its own in each layer (xIELU, 2411.13010).

use super::Arch;
use crate::blocks::{decoder, normed_attention, pre_norm};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind, Xielu};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.xielu = Xielu::read(keys, cfg.n_layer)?;
        cfg.unused = &["attn_q_norm.bias", "attn_k_norm.bias"];
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, normed_attention, ffn)),
};

fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let Xielu { alpha_n, alpha_p, beta, eps } = b.cfg.xielu[b.il()];
    let up = b.ffn_linear("ffn_up", b.layer().n_ff, x)?;
    let h = b.g.xielu(up, alpha_n, alpha_p, beta, eps); // [n_ff, n]
    b.ffn_linear("ffn_down", b.cfg.n_embd, h)
}
