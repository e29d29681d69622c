//! Gemma 4 (Google DeepMind 2026): norms on both sides of attention and FFN and of the heads of Q, K and V; heads of layers with
//! a sliding window have a length and a rotation of their own, those of the others may have V of K's matrix. In small models
//! later layers read the caches of earlier ones, and layers have embeddings of their own; some have experts beside the FFN.
//!
//! `gemma4-assistant` files have layers that predict ahead: of a token and the hidden state before it they make logits of the
//! next token, and the hidden state before that. They have no keys; the model's last caches are what they see.

use super::{Arch, DraftLayers};
use crate::blocks::{
    Bank, attention_between_norms, attention_over_shared_caches, embedding_of_layer, experts, ffn_gated,
    gated_embedding, head, logits, per_layer_embeddings, qkv, queries, read_caches, route, router_logits,
    token_embedding,
};
use crate::builder::Builder;
use crate::config::{
    Config, ExpertActivation, Gating, Glu, Keys, LayerConfig, MAX_DIM, MAX_LAYERS, MoeConfig, Norm, RopeKind,
};
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Activation, Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

pub(super) const ASSISTANT: DraftLayers =
    DraftLayers { name: "gemma4-assistant", of: "gemma4", config: assistant_config, graph: assistant_graph };

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

fn assistant_config(keys: &Keys<'_>, model: &Config) -> Result<Config> {
    let n_layer = keys.count("block_count", 1..=MAX_LAYERS)? as usize;
    let mut cfg = Config::of_layers(keys.meta, keys.arch, n_layer, true, Norm::Rms, RopeKind::Neox)?;
    (cfg.attn_scale, cfg.ffn_scales, cfg.sees_before) = (1.0, true, true);
    cfg.read_listed_windows(keys)?;
    cfg.read_windowed_heads(keys)?;
    let n_embd = keys.count("embedding_length_out", 1..=MAX_DIM)?;
    if n_embd != model.n_embd {
        let expected = format!("{}, as the model's hidden states have", model.n_embd);
        return Err(keys.bad("embedding_length_out", n_embd, expected));
    }
    for layer in &mut cfg.layers {
        layer.cache_of = Some(cache_for(keys, layer, model)?);
    }
    Ok(cfg)
}

/// The layer whose caches one that predicts ahead reads: those of the model's last layer but one, if it has a window, else of
/// the last.
fn cache_for(keys: &Keys<'_>, layer: &LayerConfig, model: &Config) -> Result<usize> {
    let last = model.n_layer.checked_sub(if layer.window > 0 { 2 } else { 1 });
    let owner = last.map(|il| model.layers[il].cache_of.unwrap_or(il));
    let sizes = |layer: &LayerConfig| (layer.window, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v);
    // A window of one token ends before the query that sees it.
    let is_like = |&il: &usize| sizes(&model.layers[il]) == sizes(layer) && layer.window != 1;
    owner.filter(is_like).ok_or_else(|| {
        let (window, n_head_kv, head_dim_k, head_dim_v) = sizes(layer);
        let found = format!(
            "a window of {window} tokens, {n_head_kv} KV heads of {head_dim_k} and {head_dim_v} elements"
        );
        let expected =
            "those of the model's last two layers: one with a window of 2 or more tokens, then one without";
        keys.bad("attention.sliding_window_pattern", found, expected)
    })
}

fn assistant_graph(b: &mut Builder<'_>, model: &Config) -> Result<Tensor> {
    let read: Vec<usize> = b.cfg.layers.iter().filter_map(|layer| layer.cache_of).collect();
    for il in read {
        if b.kv_caches_of(il).is_err() {
            read_caches(b, model, il);
        }
    }
    let n = model.n_embd;
    let table = b.weight_of_model("token_embd.weight", &[n, model.n_vocab], Role::Embedding)?;
    let tokens = b.input(Input::Tokens);
    let x = b.g.get_rows(table, tokens);
    let x = b.g.scale(x, model.scales.embedding);
    let hidden = b.input(Input::Hidden(n));
    let both = b.g.concat(x, hidden, 0); // [2 n, n_tokens]
    let x = b.linear("nextn.pre_projection", b.cfg.n_embd, both)?;

    let x = b.layers(x, |b, x| block(b, x, None))?; // [n_embd, n_outputs]
    let x = b.norm("output_norm", x)?;
    let logits = logits(b, x)?; // [n_vocab, n_outputs]
    b.hidden = Some(b.linear("nextn.post_projection", n, x)?);
    Ok(logits)
}
