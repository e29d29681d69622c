//! GPT-NeoX (arXiv 2204.06745) and Pythia (2304.01373): attention and FFN side by side, each with a norm of its own, or one
//! after the other.

use super::Arch;
use crate::blocks::{attention_output, decoder, ffn_plain, pre_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.is_parallel = keys.optional("use_parallel_residual")?.unwrap_or(true);
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    match b.cfg.is_parallel {
        true => decoder(b, block),
        false => decoder(b, |b, x| pre_norm(b, x, self_attention, ffn)),
    }
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn(b, h)?;
    let x = b.g.add(ffn, x);
    Ok(b.add("l_out", x, attn))
}

fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    ffn_plain(b, Activation::Gelu, x)
}
