//! Falcon-H1 (arXiv 2507.22448): in each layer Mamba 2 and attention side by side, then an FFN.

use super::Arch;
use crate::blocks::{decoder, mamba2_mixer, mix_by_attention, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    cfg.unused = &["rope_freqs.weight", "attn_output.bias"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, block)
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [attn, _] = mix_by_attention(b, h, x, self_attention)?; // [n_embd, n]: in the last layer the outputs alone
    let [ssm, x] = mamba2_mixer(b, h, x)?;
    let both = b.g.add(attn, ssm);
    let x = b.add("ffn_inp", both, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = swiglu(b, h)?;
    Ok(b.add("l_out", ffn, x))
}
