//! GPT-2 (Radford et al. 2019): learned positions, layer norms, biases on everything.

use super::Arch;
use crate::blocks::{ffn_plain, head, position_embedding, pre_norm, self_attention, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::None, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let pos = position_embedding(b)?;
    let x = b.add("inpL", x, pos);
    let x = b.layers(x, |b, x| pre_norm(b, x, self_attention, |b, x| ffn_plain(b, Activation::Gelu, x)))?;
    head(b, x) // [n_vocab, n_outputs]
}
