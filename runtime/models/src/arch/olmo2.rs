//! OLMo 2 and 3 (arXiv 2501.00656): norms after attention and FFN instead of before, and of all heads of Q and of K at once.
//! OLMo 3 has sliding windows in three of four layers, whose positions are not stretched.

use super::Arch;
use crate::blocks::{attention_by_normed_row, decoder, post_norm, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
    let windowed = keys.windowed_layers(cfg.n_layer, 4)?;
    cfg.set_window(window, |il| windowed[il]);
    cfg.rope.windowed = cfg.rope.plain(cfg.rope.params.freq_base);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| post_norm(b, x, attention_by_normed_row, swiglu))
}
