//! DeciLM and Llama-Nemotron (arXiv 2411.19146): Llama whose layers were searched: some have one matrix instead of
//! attention, some neither, some no FFN.

use super::Arch;
use crate::blocks::{attention_output, decoder, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, block)
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let x = match b.layer().n_head {
        0 => {
            let [x] = b.keep_outputs([x]);
            x
        }
        _ => mixed(b, x)?,
    };
    if b.layer().n_ff == 0 {
        return Ok(x);
    }
    let h = b.norm("ffn_norm", x)?;
    let ffn = swiglu(b, h)?;
    Ok(b.add("l_out", ffn, x))
}

/// x + attention(norm(x)), or a matrix in its place: [n_embd, n].
fn mixed(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = match b.layer().n_head_kv {
        0 => h,
        _ => self_attention(b, h)?, // [head_dim * n_head, n_tokens]
    };
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?;
    Ok(b.add("ffn_inp", attn, x))
}
