//! Qwen 3 VL (arXiv 2511.21631), the language model: Qwen 3 with rotations by sections.

use super::Arch;
use crate::blocks::{decoder, logits, normed_attention, pre_norm, swiglu, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.classifier.has_softmax = true;
        cfg.rope.set_sections(keys).map(drop)
    },
    graph: |b| decoder(b, block),
};

/// The talker of Qwen 3 TTS (Qwen Team 2026): it reads text and codes of sounds, and writes codes, the last tokens of its
/// vocabulary.
pub(super) const QWEN3TTS: Arch = Arch { graph: talker, ..ARCH };

/// Codes that the talker writes.
const N_CODES: u64 = 3072;

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    pre_norm(b, x, normed_attention, swiglu)
}

fn talker(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    let x = b.norm("output_norm", x)?;
    if !b.gives_logits() || b.cfg.n_vocab <= N_CODES || !b.has("output.weight") {
        return logits(b, x); // [n_vocab, n_outputs]
    }
    let codes = b.linear("output", N_CODES, x)?; // [N_CODES, n_outputs]
    let text = b.g.slice(codes, 0, 0, 1);
    let text = b.g.fill(text, f32::MIN); // No text is written.
    let text = b.g.repeat(text, &[b.cfg.n_vocab - N_CODES, b.g.ne(codes)[1]]);
    Ok(b.g.concat(text, codes, 0)) // [n_vocab, n_outputs]
}
