//! PLaMo 13B (Preferred Networks 2023): one norm, then attention and FFN side by side.

use super::Arch;
use crate::blocks::{decoder, parallel, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| parallel(b, x, self_attention, swiglu))
}
