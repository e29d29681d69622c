//! Nanbeige (Nanbeige LLM Lab 2025): Llama whose layers run several times, each time with caches of their own.

use super::Arch;
use crate::blocks::{head, pre_norm, self_attention, swiglu, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, LoopConfig, MAX_LAYERS, MAX_LOOPS, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ffn_scales = true;
    let n_layer = cfg.n_layer;
    let n_loops = keys.count_or("num_loops", 1..=MAX_LOOPS.min(MAX_LAYERS / n_layer as u64), 1)?;
    let has_norm = !keys.optional("skip_loop_final_norm")?.unwrap_or(false);
    cfg.loops = LoopConfig { n_layer, has_norm, ..LoopConfig::default() };
    cfg.run_blocks((0..n_loops).flat_map(|_| 0..n_layer));
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let mut x = token_embedding(b)?; // [n_embd, n_tokens]
    let loops = &b.cfg.loops;
    for start in (0..b.cfg.n_layer).step_by(loops.n_layer) {
        if start > 0 && loops.has_norm {
            x = b.norm("output_norm", x)?;
        }
        let layers = start..start + loops.n_layer;
        x = b.layers_in(layers, x, |b, x| pre_norm(b, x, self_attention, swiglu))?;
    }
    head(b, x) // [n_vocab, n_outputs]
}
