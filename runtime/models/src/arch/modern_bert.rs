//! ModernBERT (arXiv 2412.13663): norms before attention and FFN; two layers of three see a window to both sides and have a
//! rotation of their own; gate and up in one matrix.

use super::Arch;
use crate::blocks::{attention_output, ffn_fused, self_attention, token_embedding};
use crate::builder::Builder;
use crate::config::{AllBut, Config, Keys, Norm, Pooling, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    (cfg.is_causal, cfg.classifier.has_gelu) = (false, true);
    cfg.classifier.pooling.get_or_insert(Pooling::Mean);
    cfg.read_windows(keys, 0, AllBut::FirstOf(3))?;
    cfg.rope.windowed = cfg.rope.unstretched(keys.f32_or_zero("rope.freq_base_swa", 10000.0)?);
    cfg.unused = &["ffn_up.bias", "ffn_down.bias", "attn_output.bias"];
    cfg.ffn_activation = match keys.optional("hidden_activation")? {
        Some("silu" | "swish" | "swiglu") => Activation::Silu,
        Some("relu" | "reglu") => Activation::Relu,
        _ => Activation::Gelu,
    };
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.norm("token_embd_norm", x)?;
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    b.norm("output_norm", x)
}

/// The first layer takes the embeddings' norm for its own.
fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = match b.il() == 0 && !b.has("attn_norm.weight") {
        true => x,
        false => b.norm("attn_norm", x)?, // [n_embd, n_tokens]
    };
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn_fused(b, b.cfg.ffn_activation, h)?;
    Ok(b.add("l_out", ffn, x))
}
