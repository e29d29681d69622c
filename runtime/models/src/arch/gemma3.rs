//! Gemma 3 (arXiv 2503.19786): norms on both sides of attention and FFN and of the heads of Q and K; five layers of six have
//! a sliding window and a rotation of their own. The file's norm weights have their 1 added already.

use super::Arch;
use crate::blocks::{attention, attention_output, ffn_gated, head, qkv, rope, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_abi::op::RopeParams;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.optional("attention.sliding_window")?.unwrap_or(1024);
    let windowed = keys.windowed_layers(cfg.n_layer, 6)?;
    cfg.set_window(window, |il| windowed[il]);

    // Windows are short: their positions are neither stretched nor turned as slowly.
    let freq_base = keys.f32_or_zero("rope.freq_base_swa", 10000.0)?;
    cfg.rope.windowed = RopeParams { freq_base, freq_scale: 1.0, ext_factor: 0.0, ..cfg.rope.params };

    // The 27B, known by its layers, scales queries by n_embd / n_head, the smaller ones by their heads' size.
    if cfg.n_layer == 62 {
        let query = (cfg.n_embd / cfg.layers[0].n_head).max(1);
        cfg.attn_scale = keys.f32_or_zero("attention.scale", (query as f32).sqrt().recip())?;
    }
    cfg.final_softcap = keys.optional("final_logit_softcapping")?.unwrap_or(0.0);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.g.scale(x, (b.cfg.n_embd as f32).sqrt());
    let x = b.name(x, "inp_scaled");
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let (q, k, v) = qkv(b, h)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (b.norm("attn_q_norm", q)?, b.norm("attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let attn = attention(b, q, k, v)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let attn = b.norm("post_attention_norm", attn)?;
    let x = b.add("sa_out", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn_gated(b, Activation::Gelu, h)?;
    let ffn = b.norm("post_ffw_norm", ffn)?;
    Ok(b.add("l_out", ffn, x))
}
