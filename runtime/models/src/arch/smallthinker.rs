//! SmallThinker (arXiv 2507.20984): the router reads the layer's input, before attention; experts with ReLU gates; three layers
//! of four have a sliding window, and only these rotate their heads.

use super::Arch;
use crate::blocks::{Bank, attention_output, decoder, experts, route, router_logits, self_attention};
use crate::builder::Builder;
use crate::config::{AllBut, Config, ExpertActivation, Glu, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph: |b| decoder(b, block) };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    if keys.count_or("attention.sliding_window", 0..=u64::MAX, 0)? > 0 {
        let windowed = cfg.read_windows(keys, WINDOW, AllBut::FirstOf(4))?;
        // Whatever the file has: models are trained with this one.
        cfg.set_window(WINDOW, |il| windowed[il]);
        cfg.set_rope(|il| il % 4 != 0);
    }
    let moe = cfg.experts(keys)?;
    moe.normalise = true;
    moe.activation = ExpertActivation::Gated(Glu::Plain(Activation::Relu));
    Ok(())
}

const WINDOW: u32 = 4096;

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let Some(cfg) = &b.cfg.moe else { return Ok(x) };
    let logits = router_logits(b, cfg, x)?; // [n_expert, n_tokens]
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x, logits] = b.keep_outputs([attn, x, logits]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let chosen = route(b, cfg, logits)?;
    let bank = Bank::of_layer(b, cfg);
    let ffn = experts(b, cfg, &bank, h, chosen)?;
    Ok(b.add("l_out", ffn, x))
}
