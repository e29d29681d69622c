//! Qwen 2 and 2.5 (arXiv 2407.10671): Llama with biases on Q, K and V, and halves of heads as pairs.

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu))
}
