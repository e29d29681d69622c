//! Muse Glimmer: norms on both sides of attention and FFN, of the embeddings and of the heads of Q and K; gates on the
//! heads' results. Three layers of four have a sliding window, and only these rotate their heads.

use super::Arch;
use crate::blocks::{attention_output, gated, head, normed_attention, swiglu, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
    let windowed = keys.windowed_layers(cfg.n_layer, 4)?;
    cfg.set_window(window, |il| windowed[il]);
    cfg.set_rope(|il| windowed[il]);
    let freq_base = keys.f32_or_zero("rope.freq_base_swa", cfg.rope.params.freq_base)?;
    cfg.rope.windowed = cfg.rope.unstretched(freq_base);
    cfg.scales.logits = keys.f32_or_zero("logit_scale", 1.0)?;
    cfg.final_softcap = keys.optional("final_logit_softcapping")?.unwrap_or(0.0);
    cfg.unused = &["attn_gate.scale"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.plain_norm("inp_norm", x);
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = normed_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let attn = gated(b, h, attn)?;
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let attn = norm_of_result(b, "post_attention_norm", attn)?;
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = swiglu(b, h)?;
    let ffn = norm_of_result(b, "post_ffw_norm", ffn)?;
    Ok(b.add("l_out", ffn, x))
}

/// What attention and FFN give is normed with an epsilon that files do not have.
fn norm_of_result(b: &mut Builder<'_>, name: &str, y: Tensor) -> Result<Tensor> {
    let weight = b.weight(&format!("{name}.weight"), &[b.cfg.n_embd], Role::Norm)?;
    let y = b.g.rms_norm(y, weight, 1e-8);
    Ok(b.name(y, name))
}
