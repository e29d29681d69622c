//! Hyper-connections: the `hyper_connection.*` keys.

use super::{Config, Keys, MAX_DIM};
use crate::error::Result;

/// How residual streams are mixed and written (arXiv 2409.19606). All 0 in models with one stream.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HyperConfig {
    /// Residual streams.
    pub n_stream: u64,
    /// Elements between the two matrices of a gate, in models whose elements have gates.
    pub low_rank: u64,
    /// Added to the weights of streams.
    pub eps: f32,
    /// Factor on how much of a part's result goes to a stream.
    pub scale: f32,
    /// Added to it.
    pub bias: f32,
    /// How often rows and columns of the streams' exchange are normalised; 0: streams do not exchange.
    pub n_sinkhorn: u64,
}

/// Far above every model.
const MAX_STREAMS: u64 = 64;
const MAX_SINKHORN: u64 = 64;

impl HyperConfig {
    /// Streams whose elements have gates of their own, made by two matrices (Qwen 4).
    pub(crate) fn read_gated(cfg: &Config, keys: &Keys<'_>) -> Result<HyperConfig> {
        Ok(HyperConfig {
            low_rank: keys.count("hyper_connection.low_rank", 1..=MAX_DIM)?,
            ..HyperConfig::read_streams(cfg, keys)?
        })
    }

    /// Streams with one weight each (Hunyuan 4).
    pub(crate) fn read_weighted(cfg: &Config, keys: &Keys<'_>) -> Result<HyperConfig> {
        let eps = keys.meta.require(&keys.name("hyper_connection.epsilon"))?;
        let scale = keys.meta.require(&keys.name("hyper_connection.magnitude"))?;
        Ok(HyperConfig { eps, scale, bias: eps, ..HyperConfig::read_streams(cfg, keys)? })
    }

    /// Streams with one weight each that exchange by a doubly stochastic matrix (mHC, arXiv 2512.24880).
    pub(crate) fn read_exchanging(cfg: &Config, keys: &Keys<'_>) -> Result<HyperConfig> {
        Ok(HyperConfig {
            eps: keys.meta.require(&keys.name("hyper_connection.epsilon"))?,
            scale: 2.0,
            n_sinkhorn: keys.count("hyper_connection.sinkhorn_iterations", 1..=MAX_SINKHORN)?,
            ..HyperConfig::read_streams(cfg, keys)?
        })
    }

    fn read_streams(cfg: &Config, keys: &Keys<'_>) -> Result<HyperConfig> {
        let most = MAX_STREAMS.min(MAX_DIM / cfg.n_embd);
        let n_stream = keys.count("hyper_connection.count", 2..=most.max(2))?;
        Ok(HyperConfig { n_stream, ..HyperConfig::default() })
    }
}
