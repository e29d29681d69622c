//! RWKV 6 (arXiv 2404.05892), and RWKV6-Qwen2 (2505.03005), whose heads come from it and whose FFNs are Qwen's.

use super::Arch;
use crate::blocks::{decoder, head, rwkv_layer, rwkv6, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, RwkvConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const RWKV6: Arch =
    Arch { has_attention: false, norm: Norm::Layer, rope: RopeKind::None, config, graph };

pub(super) const RWKV6_QWEN2: Arch =
    Arch { norm: Norm::Rms, graph: |b| decoder(b, |b, x| rwkv_layer(b, x, rwkv6)), ..RWKV6 };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.rwkv = RwkvConfig::read_6(cfg, keys)?;
    cfg.read_n_ff(keys)
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.norm("token_embd_norm", x)?;
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let x = rwkv_layer(b, x, rwkv6)?;
    // Half precision overflowed in deep models, so files have matrices that grew with the layers, and these lines.
    match b.cfg.rwkv.halved_every {
        n if n > 0 && (b.il() + 1).is_multiple_of(n) => Ok(b.g.scale(x, 0.5)),
        _ => Ok(x),
    }
}
