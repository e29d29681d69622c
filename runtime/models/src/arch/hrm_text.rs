//! Hierarchical Reasoning Model (arXiv 2506.21734) for text: a stack of lower layers runs a few times for each run of the
//! upper stack. Each reads the sum of both stacks' states. Norms without weights; gates on the heads' results.

use super::Arch;
use crate::blocks::{gated, logits, pre_norm, self_attention, swiglu, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, LoopConfig, MAX_LAYERS, MAX_LOOPS, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let n_layer = keys.count("hrm.layers_per_stack", 1..=MAX_LAYERS)?;
    let n_low = keys.count("hrm.l_cycles", 1..=MAX_LOOPS)?;
    let n_runs = keys.count("hrm.h_cycles", 1..=MAX_LOOPS)? * (n_low + 1);
    if n_runs * n_layer != cfg.n_layer as u64 {
        return Err(keys.bad("block_count", cfg.n_layer, format!("{n_runs} runs of {n_layer} layers")));
    }
    let (n_layer, n_low) = (n_layer as usize, n_low as usize);
    cfg.loops = LoopConfig { n_layer, n_low, has_norm: true };
    cfg.run_blocks((0..n_runs as usize).flat_map(|run| {
        let start = if run % (n_low + 1) == n_low { n_layer } else { 0 };
        start..start + n_layer
    }));
    cfg.has_norm_weights = false;
    cfg.scales.embedding = keys.f32_or_zero("embedding_scale", 1.0)?;
    cfg.unused = &["attn_gate.scale"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let loops = &b.cfg.loops;
    let mut upper = token_embedding(b)?; // [n_embd, n_tokens]
    let mut lower = b.weight("hrm.z_l_init", &[b.cfg.n_embd], Role::Other)?;
    for (run, start) in (0..b.cfg.n_layer).step_by(loops.n_layer).enumerate() {
        let both = b.g.add(upper, lower);
        let layers = start..start + loops.n_layer;
        let x = b.layers_in(layers, both, |b, x| pre_norm(b, x, gated_attention, swiglu))?;
        let x = b.norm("stack_norm", x)?;
        match run % (loops.n_low + 1) == loops.n_low {
            true => upper = x,
            false => lower = x,
        }
    }
    logits(b, upper) // [n_vocab, n_outputs]
}

fn gated_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let heads = self_attention(b, x)?; // [head_dim * n_head, n_tokens]
    gated(b, x, heads)
}
