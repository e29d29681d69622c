//! Gemma 4 (Google DeepMind 2026): norms on both sides of attention and FFN and of the heads of Q, K and V; heads of layers with
//! a sliding window have a length and a rotation of their own, those of the others may have V of K's matrix. In small models
//! later layers read the caches of earlier ones, and layers have embeddings of their own; some have experts beside the FFN.

use super::Arch;
use crate::blocks::{
    Bank, attention_between_norms, attention_over_shared_caches, embedding_of_layer, experts, ffn_gated,
    gated_embedding, head, per_layer_embeddings, qkv, queries, route, router_logits, token_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, ExpertActivation, Gating, Glu, Keys, MAX_DIM, MoeConfig, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
    cfg.attn_scale = 1.0;
    cfg.final_softcap = keys.optional("final_logit_softcapping")?.unwrap_or(0.0);
    cfg.n_embd_per_layer = keys.count_or("embedding_length_per_layer_input", 0..=MAX_DIM, 0)?;
    cfg.ffn_scales = true;
    cfg.read_listed_windows(keys)?;
    cfg.read_windowed_heads(keys)?;
    let n_shared = keys.count_or("attention.shared_kv_layers", 0..=cfg.n_layer as u64, 0)?;
    cfg.share_caches(keys, cfg.n_layer - n_shared as usize)?;
    if let Some(moe) = &mut cfg.moe {
        (moe.gating, moe.normalise, moe.scale) = (Gating::SoftMax, true, 1.0);
        moe.activation = ExpertActivation::Gated(Glu::Plain(Activation::Gelu));
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let embeddings = match b.cfg.n_embd_per_layer {
        0 => None,
        _ => Some(per_layer_embeddings(b, x)?),
    };
    let x = b.layers(x, |b, x| block(b, x, embeddings))?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor, embeddings: Option<Tensor>) -> Result<Tensor> {
    let x = attention_between_norms(b, x, |b, x| attention_over_shared_caches(b, x, own_qkv))?; // [n_embd, n]
    let ffn = ffn(b, x)?;
    let ffn = b.norm("post_ffw_norm", ffn)?;
    let mut x = b.add("ffn_out", ffn, x);

    if let Some(embeddings) = embeddings {
        let own = embedding_of_layer(b, embeddings);
        let [own] = b.keep_outputs([own]);
        let more = gated_embedding(b, x, own)?;
        x = b.add("per_layer_embd_out", x, more);
    }
    Ok(match b.optional("layer_output_scale.weight", &[1], Role::Other)? {
        Some(scale) => b.g.mul(x, scale),
        None => x,
    })
}

/// V is made by K's matrix where the file has none for it.
fn own_qkv(b: &mut Builder<'_>, x: Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    if b.has("attn_qkv.weight") || b.has("attn_v.weight") {
        return qkv(b, x);
    }
    let q = queries(b, x)?;
    let k = b.linear("attn_k", b.cfg.n_embd_k(b.il()), x)?;
    let k = b.g.split_heads(k, b.layer().n_head_kv);
    Ok((q, k, k))
}

/// The dense FFN, in layers with a router beside its experts.
fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("ffn_norm", x)?;
    let dense = ffn_gated(b, Activation::Gelu, h)?;
    match &b.cfg.moe {
        Some(cfg) if b.has("ffn_gate_inp.weight") => {
            let dense = b.norm("post_ffw_norm_1", dense)?;
            let chosen = chosen_experts(b, cfg, x)?;
            Ok(b.add("ffn_moe_combined", dense, chosen))
        }
        _ => Ok(dense),
    }
}

/// Experts, chosen by a norm of their own.
fn chosen_experts(b: &mut Builder<'_>, cfg: &MoeConfig, x: Tensor) -> Result<Tensor> {
    let n_embd = b.cfg.n_embd;
    let h = b.plain_norm("ffn_moe_inp", x);
    let h = b.g.scale(h, (n_embd as f32).sqrt().recip());
    let scale = b.weight("ffn_gate_inp.scale", &[n_embd], Role::Other)?;
    let h = b.g.mul(h, scale);
    let logits = router_logits(b, cfg, h)?; // [n_expert, n]

    let h = b.norm("pre_ffw_norm_2", x)?;
    let chosen = route(b, cfg, logits)?;
    let bank = Bank::of_layer(b, cfg);
    let ffn = experts(b, cfg, &bank, h, chosen)?;
    b.norm("post_ffw_norm_2", ffn)
}
