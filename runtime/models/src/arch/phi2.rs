//! Phi 1 to 2 (arXiv 2309.05463): one norm, then attention and FFN side by side; biases on everything.

use super::Arch;
use crate::blocks::{decoder, ffn_plain, parallel, self_attention};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::Neox, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| parallel(b, x, self_attention, |b, x| ffn_plain(b, Activation::Gelu, x)))
}
