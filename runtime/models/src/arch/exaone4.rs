//! EXAONE 4 (arXiv 2507.11407): norms after attention and FFN instead of before, and of the heads of Q and K. Of the 32B's
//! layers three of four have a sliding window, and only these rotate their heads.

use super::Arch;
use crate::blocks::{decoder, normed_attention, post_norm, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    // The 32B is known by its layers.
    if cfg.n_layer == 64 {
        let window = keys.optional("attention.sliding_window")?.unwrap_or(4096);
        let windowed = keys.windowed_layers(cfg.n_layer, 4)?;
        cfg.set_window(window, |il| windowed[il]);
        cfg.set_rope(|il| windowed[il]);
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| post_norm(b, x, normed_attention, swiglu))
}
