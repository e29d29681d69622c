//! PLaMo 2 (arXiv 2509.04897): a variant of Mamba whose heads are those of Mamba 2, and attention; norms before and after
//! each part, also of Δ, B and C and of the heads of Q and K.

use super::Arch;
use crate::blocks::{
    SsmScan, attention_by_normed_head, decoder, ffn_fused, mamba_output, mix_by_attention, part_of_heads,
};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    // No key has the elements between the matrices of Δ.
    let dt_rank = (cfg.n_embd / 16).max(64);
    cfg.ssm = SsmConfig { n_group: 0, dt_rank, ..SsmConfig::read(keys)? };
    cfg.attn_scale = (cfg.head_dim_v as f32).sqrt().recip();
    cfg.unused = &["attn_qkv.scale", "ssm_in.scale", "ssm_out.scale"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, block)
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [y, x] = match b.layer().is_recurrent() {
        true => mamba_mixer(b, h, x)?,
        false => mix_by_attention(b, h, x, attention_by_normed_head)?,
    }; // [n_embd, n]: in the last layer the outputs alone
    let y = b.norm("post_attention_norm", y)?;
    let x = b.add("ffn_inp", y, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn_fused(b, Activation::Silu, h)?;
    let ffn = b.norm("post_ffw_norm", ffn)?;
    Ok(b.add("l_out", ffn, x))
}

fn mamba_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let [y, gate] = mamba(b, h)?; // [n_inner, n_tokens]
    let [y, gate, x] = b.keep_outputs([y, gate, x]);
    Ok([mamba_output(b, y, gate)?, x])
}

/// The scan, and the gate of its result: both [n_inner, n_tokens].
fn mamba(b: &mut Builder<'_>, h: Tensor) -> Result<[Tensor; 2]> {
    let ssm = &b.cfg.ssm;
    let (n_inner, n_head, n_state, dt_rank) = (ssm.n_inner, ssm.n_head, ssm.n_state, ssm.dt_rank);
    // Of each head the gate, then x.
    let both = b.linear("ssm_in", 2 * n_inner, h)?;
    let heads = b.g.split_heads(both, n_head); // [2 * head_dim, n_head, n_tokens]
    let head_dim = n_inner / n_head;
    let [gate, x] = [0, head_dim].map(|start| part_of_heads(b, heads, start, head_dim));

    let scan = SsmScan::new(b);
    let x = scan.convolution(b, x)?; // [n_inner, n_tokens]
    let all = b.linear("ssm_x", dt_rank + 2 * n_state, x)?;
    let [in_b, in_c] = [0, n_state].map(|start| b.g.slice(all, 0, start, n_state));
    let dt = b.g.slice(all, 0, 2 * n_state, dt_rank);
    let (in_b, in_c) = (b.norm("ssm_b_norm", in_b)?, b.norm("ssm_c_norm", in_c)?);
    let dt = b.norm("ssm_dt_norm", dt)?;
    let dt = b.linear("ssm_dt", n_head, dt)?; // [n_head, n_tokens]
    let (a, d) = (b.per_head("ssm_a", n_head)?, b.per_head("ssm_d", n_head)?);
    Ok([scan.run(b, x, dt, [in_b, in_c], a, d), gate])
}
