//! Arctic (Snowflake 2024): a small dense FFN after attention; experts beside both, on the layer's input.

use super::Arch;
use crate::blocks::{attention_output, decoder, moe, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| {
        cfg.layers.iter_mut().for_each(|layer| layer.n_ff = cfg.n_embd);
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    graph: |b| decoder(b, block),
};

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let after = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", after)?;
    let ffn = swiglu(b, h)?;
    let dense = b.add("ffn_out", ffn, after);

    let h = b.norm("ffn_norm_exps", x)?;
    let chosen = moe(b, h)?;
    Ok(b.add("l_out", chosen, dense))
}
