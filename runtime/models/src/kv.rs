//! What the KV cache of a model holds for each token.

use crate::config::Config;
use crate::error::{Error, Result};
use llmrt_abi::DType;

/// Rows of the caches, and their bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvLayout {
    /// By layer.
    pub layers: Vec<KvLayer>,
    /// Bytes that one token takes in all layers.
    pub bytes_per_token: u64,
}

/// Rows of one layer's caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvLayer {
    /// Elements of a K row.
    pub n_embd_k: u64,
    /// Elements of a V row.
    pub n_embd_v: u64,
}

impl KvLayout {
    pub(crate) fn new(cfg: &Config, k_type: DType, v_type: DType) -> Result<KvLayout> {
        let mut layers = Vec::with_capacity(cfg.n_layer);
        let mut bytes_per_token = 0u64;
        for il in 0..cfg.n_layer {
            let (n_embd_k, n_embd_v) = (cfg.n_embd_k(il), cfg.n_embd_v(il));
            let k_bytes = row_bytes("K", il, k_type, cfg.head_dim_k, n_embd_k)?;
            let v_bytes = row_bytes("V", il, v_type, cfg.head_dim_v, n_embd_v)?;
            bytes_per_token = bytes_per_token.saturating_add(k_bytes).saturating_add(v_bytes);
            layers.push(KvLayer { n_embd_k, n_embd_v });
        }
        Ok(KvLayout { layers, bytes_per_token })
    }
}

/// A head begins with a block, so that heads are read apart.
fn row_bytes(cache: &'static str, layer: usize, dtype: DType, head_dim: u64, n_embd: u64) -> Result<u64> {
    let whole = dtype.row_bytes(head_dim).and(dtype.row_bytes(n_embd));
    whole.ok_or(Error::CacheType { cache, layer, dtype, head_dim, block: dtype.block_elems() })
}
