//! Qwen3-Next (Qwen, 2025) and Qwen 3.5 (2026): gated delta networks in most layers, attention with gated results in the
//! others; dense or with experts beside a gated FFN that all tokens go through.

use super::Arch;
use crate::blocks::{
    attention, attention_output, decoder, delta_net_mixer, hybrid, part_of_heads, rope, swiglu_or_experts,
};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const QWEN3_NEXT: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.unused = &["attn_qkv.scale", "attn_gate.scale", "ssm_out.scale", "ssm_in.scale"];
        config(cfg, keys)
    },
    graph,
};

/// Positions of text are the same in all sections of its rotation.
pub(super) const QWEN3_5: Arch = Arch { config, ..QWEN3_NEXT };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    if cfg.ssm.n_inner != cfg.ssm.n_head * cfg.ssm.n_state {
        let expected = format!("{} heads of {}", cfg.ssm.n_head, cfg.ssm.n_state);
        return Err(keys.bad("ssm.inner_size", cfg.ssm.n_inner, expected));
    }
    let is_recurrent = SsmConfig::read_recurrent_layers(keys, cfg.n_layer, 4)?;
    cfg.set_recurrent(|il| is_recurrent[il]);
    cfg.ffn_scales = true;
    cfg.ffn_norm = "post_attention_norm";
    if let Some(moe) = &mut cfg.moe {
        (moe.normalise, moe.gates_shared) = (true, true);
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| {
        hybrid(b, x, |b, h, x| delta_net_mixer(b, h, x, Activation::Silu), gated_attention, swiglu_or_experts)
    })
}

/// Attention whose result is gated: of each head Q's matrix has the query, then the gate.
fn gated_attention(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let (layer, head_dim) = (b.layer(), b.cfg.head_dim_k);
    let both = b.linear("attn_q", 2 * head_dim * layer.n_head, h)?;
    let both = b.g.split_heads(both, layer.n_head); // [2 * head_dim, n_head, n_tokens]
    let q = b.g.slice(both, 0, 0, head_dim);
    let gate = part_of_heads(b, both, head_dim, head_dim);
    let [k, v] =
        [b.linear("attn_k", b.cfg.n_embd_k(b.il()), h)?, b.linear("attn_v", b.cfg.n_embd_v(b.il()), h)?]
            .map(|heads| b.g.split_heads(heads, layer.n_head_kv)); // [head_dim, n_head_kv, n_tokens]

    let (q, k) = (b.norm("attn_q_norm", q)?, b.norm("attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let attn = attention(b, q, k, v)?; // [head_dim * n_head, n_tokens]
    let [attn, gate, x] = b.keep_outputs([attn, gate, x]); // [.., n]: in the last layer the outputs alone
    let attn = b.g.glu(Activation::Sigmoid, gate, Some(attn));
    Ok([attention_output(b, attn)?, x])
}
