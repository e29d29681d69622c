//! Hyper-connections: the `hyper_connection.*` keys.

use super::{Config, Keys, MAX_DIM};
use crate::error::Result;

/// How residual streams are mixed and written (arXiv 2409.19606). All 0 in models with one stream.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HyperConfig {
    /// Residual streams.
    pub n_stream: u64,
    /// Elements between the two matrices of a gate.
    pub low_rank: u64,
}

/// Far above every model.
const MAX_STREAMS: u64 = 64;

impl HyperConfig {
    /// Streams whose elements have gates of their own, made by two matrices.
    pub(crate) fn read_gated(cfg: &Config, keys: &Keys<'_>) -> Result<HyperConfig> {
        Ok(HyperConfig {
            low_rank: keys.count("hyper_connection.low_rank", 1..=MAX_DIM)?,
            ..HyperConfig::read_streams(cfg, keys)?
        })
    }

    fn read_streams(cfg: &Config, keys: &Keys<'_>) -> Result<HyperConfig> {
        let most = MAX_STREAMS.min(MAX_DIM / cfg.n_embd);
        let n_stream = keys.count("hyper_connection.count", 2..=most)?;
        Ok(HyperConfig { n_stream, ..HyperConfig::default() })
    }
}
