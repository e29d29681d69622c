//! RWKV 7 (arXiv 2503.14456), and ARWKV (2501.15570), whose heads come from it and whose FFNs are Qwen's.

use super::Arch;
use crate::blocks::{head, rwkv_layer, rwkv7, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, RwkvConfig};
use crate::error::Result;
use llmrt_graph::Tensor;
use std::cell::Cell;

pub(super) const RWKV7: Arch = Arch {
    has_attention: false,
    norm: Norm::Layer,
    rope: RopeKind::None,
    config,
    graph: |b| {
        let x = token_embedding(b)?; // [n_embd, n_tokens]
        let x = b.norm("token_embd_norm", x)?;
        layers(b, x)
    },
};

pub(super) const ARWKV7: Arch = Arch {
    norm: Norm::Rms,
    graph: |b| {
        let x = token_embedding(b)?;
        layers(b, x)
    },
    ..RWKV7
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.rwkv = RwkvConfig::read_7(cfg, keys)?;
    cfg.read_n_ff(keys)
}

/// Layers after the first see its values too.
fn layers(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let first = Cell::new(None);
    let x = b.layers(x, |b, x| {
        rwkv_layer(b, x, |b, mix| {
            let (y, values) = rwkv7(b, mix, first.get())?;
            first.set(Some(values));
            Ok(y)
        })
    })?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}
