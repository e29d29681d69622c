//! Mamba (arXiv 2312.00752), and Falcon Mamba (2410.05355), which norms Δ, B and C: no attention; each layer is a scan whose
//! state is all that a sequence keeps.

use super::Arch;
use crate::blocks::{Mixer, decoder, mamba_mixer, mamba2_mixer};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: false,
    norm: Norm::Rms,
    rope: RopeKind::None,
    config: |cfg, keys| {
        cfg.ssm = SsmConfig::read_mamba(keys)?;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| block(b, x, mamba_mixer)),
};

/// Mamba 2 (arXiv 2405.21060): fewer, larger heads.
pub(super) const MAMBA2: Arch = Arch {
    config: |cfg, keys| {
        cfg.ssm = SsmConfig::read(keys)?;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| block(b, x, mamba2_mixer)),
    ..ARCH
};

fn block(b: &mut Builder<'_>, x: Tensor, mixer: Mixer) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [y, x] = mixer(b, h, x)?; // [n_embd, n]: in the last layer the outputs alone
    Ok(b.add("l_out", y, x))
}
