//! Mamba 2 (arXiv 2405.21060): no attention; each layer is a scan whose state is all that a sequence keeps.

use super::Arch;
use crate::blocks::{head, mamba2_mixer, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: false, norm: Norm::Rms, rope: RopeKind::None, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [y, x] = mamba2_mixer(b, h, x)?; // [n_embd, n]: in the last layer the outputs alone
    Ok(b.add("l_out", y, x))
}
