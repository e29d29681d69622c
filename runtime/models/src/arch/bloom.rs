//! BLOOM (arXiv 2211.05100): GPT-2 with ALiBi (2108.12409) instead of positions, and a norm of the embeddings.

use super::Arch;
use crate::blocks::{ffn_plain, head, pre_norm, self_attention, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::None,
    config: |cfg, _| {
        cfg.alibi_max_bias = 8.0;
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.norm("token_embd_norm", x)?;
    let x = b.layers(x, |b, x| pre_norm(b, x, self_attention, |b, x| ffn_plain(b, Activation::Gelu, x)))?;
    head(b, x) // [n_vocab, n_outputs]
}
