//! MiniCPM 3 (arXiv 2404.06395): K and V of all heads are made of one latent vector (MLA, arXiv 2405.04434), and cached as
//! heads; factors on embeddings, residuals and logits.

use super::{Arch, granite::scales_of_minicpm};
use crate::blocks::{attention, decoder, pre_norm, rope, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, MAX_DIM, MlaConfig, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let n_rope = u64::from(cfg.rope.params.n_dims);
    cfg.mla = MlaConfig {
        q_rank: keys.count("attention.q_lora_rank", 1..=MAX_DIM)?,
        kv_rank: keys.count("attention.kv_lora_rank", 1..=MAX_DIM)?,
        n_rope,
        n_nope: cfg.head_dim_k - n_rope,
        v_dim: cfg.head_dim_v,
    };
    cfg.layers.iter_mut().for_each(|layer| layer.n_head_kv = layer.n_head);
    cfg.scales = scales_of_minicpm(cfg);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, latent_attention, swiglu))
}

fn latent_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (cfg, n_head, n_tokens) = (&b.cfg.mla, b.layer().n_head, b.g.ne(x)[1]);
    let low = b.linear("attn_q_a", cfg.q_rank, x)?;
    let low = b.norm("attn_q_a_norm", low)?;
    let q = b.linear("attn_q_b", cfg.q_dim() * n_head, low)?;
    let q = b.g.split_heads(q, n_head); // [q_dim, n_head, n_tokens]
    let q_nope = b.g.slice(q, 0, 0, cfg.n_nope);
    let q_rope = b.g.slice(q, 0, cfg.n_nope, cfg.n_rope);
    let q_rope = rope(b, "q_pe", q_rope)?;
    let q = b.g.concat(q_nope, q_rope, 0);

    let both = b.linear("attn_kv_a_mqa", cfg.kv_rank + cfg.n_rope, x)?;
    let latent = b.g.slice(both, 0, 0, cfg.kv_rank);
    let latent = b.norm("attn_kv_a_norm", latent)?;
    let kv = b.linear("attn_kv_b", (cfg.n_nope + cfg.v_dim) * n_head, latent)?;
    let kv = b.g.split_heads(kv, n_head); // [n_nope + v_dim, n_head, n_tokens]
    let k_nope = b.g.slice(kv, 0, 0, cfg.n_nope);
    let v = b.g.slice(kv, 0, cfg.n_nope, cfg.v_dim);

    // One rotated part for all heads.
    let k_rope = b.g.slice(both, 0, cfg.kv_rank, cfg.n_rope);
    let k_rope = b.g.split_heads(k_rope, 1);
    let k_rope = rope(b, "k_pe", k_rope)?; // [n_rope, 1, n_tokens]
    let k_rope = b.g.repeat(k_rope, &[cfg.n_rope, n_head, n_tokens]);
    let k = b.g.concat(k_nope, k_rope, 0);
    attention(b, q, k, v)
}
