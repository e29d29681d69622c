//! Llama 1 to 3 (arXiv 2302.13971, 2307.09288, 2407.21783), Mistral (2310.06825) and, with experts, Mixtral (2401.04088).

use super::Arch;
use crate::blocks::{attention, attention_output, gated_neurons, head, moe, qkv, rope, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, HiddenActivation, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

/// Bamboo (arXiv 2406.05955): Mistral with dReLU, most of whose neurons give zeros.
pub(super) const BAMBOO: Arch = Arch {
    config: |cfg, keys| {
        cfg.neurons.activation = Some(HiddenActivation::Drelu);
        config(cfg, keys)
    },
    ..ARCH
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
    cfg.set_window(window, |_| true);
    cfg.ffn_scales = true;
    cfg.moe.iter_mut().for_each(|moe| moe.normalise = true);
    cfg.read_hidden_activation(keys)
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let (q, k, v) = qkv(b, h)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let attn = attention(b, q, k, v)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = match b.layer().is_moe {
        true => moe(b, h)?,
        false => gated_neurons(b, HiddenActivation::Silu, h, x)?,
    };
    Ok(b.add("l_out", ffn, x))
}
