//! PLM (arXiv 2503.12167): K and V of all heads are made of one latent vector (MLA, 2405.04434), and cached as heads; squared
//! ReLU.

use super::Arch;
use crate::blocks::{decoder, expanded_mla, ffn_squared_relu, pre_norm};
use crate::config::{MlaConfig, Norm, RopeKind};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| {
        cfg.mla = MlaConfig::read_expanded(cfg, keys)?;
        cfg.unused = &["output.weight", "rope_freqs.weight"];
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, expanded_mla, ffn_squared_relu)),
};
