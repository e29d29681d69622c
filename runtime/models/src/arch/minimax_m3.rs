//! MiniMax M3 (MiniMax, 2026): attention as MiniMax M2's, in all but the first layers to blocks of keys that an indexer finds
//! for each KV head; experts beside an FFN that all tokens go through, with gpt-oss's activation.

use super::Arch;
use crate::blocks::{attention_to, block_indexer, decoder, dense_or_experts, pre_norm, qkv, rope};
use crate::builder::Builder;
use crate::config::{Config, ExpertActivation, Gating, Glu, IndexerConfig, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config,
    graph: |b| decoder(b, |b, x| pre_norm(b, x, sparse_attention, dense_or_experts)),
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.indexer = IndexerConfig::read(cfg, keys)?;
    cfg.indexer.block = keys.count("attention.indexer.block_size", 1..=1 << 16)?;
    cfg.indexer.n_local = keys.count("attention.indexer.local_blocks", 0..=1 << 16)?;
    let is_moe: Vec<bool> = cfg.layers.iter().map(|layer| layer.is_moe).collect();
    cfg.set_indexed(1, |il| is_moe[il]);
    let n_head = cfg.indexer.n_head;
    if let Some(layer) = cfg.layers.iter().find(|layer| layer.is_moe && layer.n_head_kv != n_head) {
        let expected = format!("{}, one for each KV head", layer.n_head_kv);
        return Err(keys.bad("attention.indexer.head_count", n_head, expected));
    }
    let moe = cfg.experts(keys)?;
    moe.gating = keys.gating(Gating::Sigmoid)?;
    (moe.activation, moe.glu_shared) = (ExpertActivation::Gated(Glu::Oai), Glu::Oai);
    Ok(())
}

fn sparse_attention(b: &mut Builder<'_>, h: Tensor) -> Result<Tensor> {
    let chosen = if b.layer().index_stride > 0 { block_indexer(b, h)? } else { None };
    let (q, k, v) = qkv(b, h)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (b.norm("attn_q_norm", q)?, b.norm("attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention_to(b, q, k, v, chosen)
}
