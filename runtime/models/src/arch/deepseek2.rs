//! DeepSeek V2 and V3 (arXiv 2405.04434, 2412.19437): latent attention, whose cache is one row for all heads; experts beside
//! an FFN that all tokens go through, in V3 chosen by groups; first layers without experts.

use super::Arch;
use crate::blocks::{ffn, head, mla, mla_output, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Gating, Keys, MlaConfig, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    set_scale(cfg, keys)?;
    if let Some(moe) = &mut cfg.moe {
        moe.gating = keys.gating(default_gating(cfg.n_layer, cfg.n_vocab))?;
    }
    Ok(())
}

/// For files without the key: those of the first models, and of GLM 4.7 Flash, the only one of them with sigmoids.
fn default_gating(n_layer: usize, n_vocab: u64) -> Gating {
    match (n_layer, n_vocab) {
        (47 | 48, 154_880) => Gating::Sigmoid,
        _ => Gating::SoftMax,
    }
}

/// YaRN (arXiv 2309.00071, section 3.4) sharpens the softmax of stretched contexts by factors on Q and K. These models
/// have them on the scores instead, with a multiplier of their own, and rotations keep lengths.
fn set_scale(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let stretch = cfg.rope.params.freq_scale.recip().ln();
    let multiplier: f32 = keys.optional("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
    let on_q_and_k = 1.0 + multiplier * stretch;
    if cfg.rope.params.ext_factor != 0.0 {
        cfg.rope.params.attn_factor /= 1.0 + 0.1 * stretch;
    }
    let plain = (cfg.mla.q_dim() as f32).sqrt().recip();
    cfg.attn_scale = plain * on_q_and_k * on_q_and_k;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = mla(b, h)?; // [kv_rank * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = mla_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn(b, h)?;
    Ok(b.add("l_out", ffn, x))
}
