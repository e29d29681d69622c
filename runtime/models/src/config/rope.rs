//! Rotary position embedding: the `rope.*` keys.

use super::{Keys, MAX_DIM};
use crate::error::Result;
use llmrt_abi::op::RopeParams;
use llmrt_gguf::printable_name;

/// Which elements of a head make a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeKind {
    /// Positions come in another way.
    None,
    /// Elements 2i and 2i + 1.
    Normal,
    /// Elements i and i + n_dims/2, as GPT-NeoX.
    Neox,
}

/// Rotary position embedding.
#[derive(Clone, PartialEq, Debug)]
pub struct RopeConfig {
    /// Which elements make a pair.
    pub kind: RopeKind,
    /// Attributes of the op, in layers without a window.
    pub params: RopeParams,
    /// In layers with a window: the same, but in Gemma 3.
    pub windowed: RopeParams,
    /// Tokens a sequence may reach: above `params.n_ctx_orig` the long frequency factors hold, else the short ones.
    pub n_ctx: u64,
}

impl RopeConfig {
    /// Linear scaling, YaRN (arXiv 2309.00071) or none; frequency factors (Llama 3, LongRoPE) are tensors.
    pub(super) fn read(
        keys: &Keys<'_>,
        kind: RopeKind,
        head_dim: u64,
        n_ctx_train: u64,
    ) -> Result<RopeConfig> {
        let n_dims = keys.count_or("rope.dimension_count", 1..=head_dim, head_dim)?;
        if kind != RopeKind::None && n_dims % 2 != 0 {
            return Err(keys.bad("rope.dimension_count", n_dims, "an even number"));
        }
        let n_ctx_orig = keys.count_or("rope.scaling.original_context_length", 1..=MAX_DIM, n_ctx_train)?;
        let scaling = keys.optional("rope.scaling.type")?.unwrap_or("linear");
        let (stretches, is_yarn) = match scaling {
            "none" => (false, false),
            "linear" | "longrope" => (true, false),
            "yarn" => (true, true),
            other => {
                return Err(keys.bad(
                    "rope.scaling.type",
                    printable_name(other),
                    "none, linear, yarn or longrope",
                ));
            }
        };

        // `rope.scale_linear` is what the factor was called at first.
        let old_factor = keys.f32_or_zero("rope.scale_linear", 1.0)?;
        let factor = keys.f32_or_zero("rope.scaling.factor", old_factor)?;
        if factor < 0.0 || !factor.is_finite() {
            return Err(keys.bad("rope.scaling.factor", factor, "a positive number"));
        }
        // Below 0: not given.
        let ext_factor = keys.optional("rope.scaling.yarn_ext_factor")?.filter(|&x: &f32| x >= 0.0);
        let params = RopeParams {
            n_dims: n_dims as u32,
            mode: if kind == RopeKind::Neox { 2 } else { 0 },
            n_ctx_orig: n_ctx_orig as u32,
            freq_base: keys.f32_or_zero("rope.freq_base", 10000.0)?,
            freq_scale: if stretches { factor.recip() } else { 1.0 },
            ext_factor: ext_factor.unwrap_or(if is_yarn { 1.0 } else { 0.0 }),
            attn_factor: keys.f32_or_zero("rope.scaling.attn_factor", 1.0)?,
            beta_fast: keys.f32_or_zero("rope.scaling.yarn_beta_fast", 32.0)?,
            beta_slow: keys.f32_or_zero("rope.scaling.yarn_beta_slow", 1.0)?,
            ..RopeParams::default()
        };
        Ok(RopeConfig { kind, params, windowed: params, n_ctx: n_ctx_orig })
    }
}
