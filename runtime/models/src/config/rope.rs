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
    /// Whether frequency factors hold in layers with a window.
    pub windows_have_factors: bool,
    /// Tokens a sequence may reach: above `params.n_ctx_orig` the long frequency factors hold, else the short ones.
    pub n_ctx: u64,
}

/// The op's mode for `RopeKind::Neox`.
const MODE_NEOX: u32 = 2;

impl RopeConfig {
    /// Linear scaling, YaRN (arXiv 2309.00071) or none; frequency factors (Llama 3, LongRoPE) are tensors.
    pub(super) fn read(
        keys: &Keys<'_>,
        kind: RopeKind,
        head_dim: u64,
        n_ctx_train: u64,
    ) -> Result<RopeConfig> {
        let n_dims = match kind {
            RopeKind::None => head_dim.min(u64::from(u32::MAX)) as u32,
            _ => n_dims(keys, "rope.dimension_count", head_dim, head_dim)?,
        };
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
        let params = RopeParams {
            n_dims,
            mode: if kind == RopeKind::Neox { MODE_NEOX } else { 0 },
            n_ctx_orig: n_ctx_orig as u32,
            freq_base: keys.f32_or_zero("rope.freq_base", 10000.0)?,
            freq_scale: if stretches { factor.recip() } else { 1.0 },
            ext_factor: if is_yarn { 1.0 } else { 0.0 },
            attn_factor: keys.f32_or_zero("rope.scaling.attn_factor", 1.0)?,
            beta_fast: 32.0,
            beta_slow: 1.0,
            ..RopeParams::default()
        };
        Ok(RopeConfig { kind, params, windowed: params, windows_have_factors: true, n_ctx: n_ctx_orig })
    }

    /// Where YaRN's extrapolation begins and ends. llama.cpp, whose files these are, reads past these keys in most models.
    pub(crate) fn read_betas(&mut self, keys: &Keys<'_>) -> Result<()> {
        let params = &mut self.params;
        params.beta_fast = keys.f32_or_zero("rope.scaling.yarn_beta_fast", params.beta_fast)?;
        params.beta_slow = keys.f32_or_zero("rope.scaling.yarn_beta_slow", params.beta_slow)?;
        Ok(())
    }

    /// As `read_betas`, and YaRN's share of extrapolation, below 0: as the type of scaling has it; without any there is a
    /// factor on rotations in its place.
    pub(crate) fn read_yarn(&mut self, keys: &Keys<'_>) -> Result<()> {
        self.read_betas(keys)?;
        let params = &mut self.params;
        let ext_factor = keys.optional("rope.scaling.yarn_ext_factor")?.filter(|&x: &f32| x >= 0.0);
        params.ext_factor = ext_factor.unwrap_or(params.ext_factor);
        if params.ext_factor == 0.0 {
            params.attn_factor *= keys.f32_or_zero("rope.scaling.yarn_attn_factor", 1.0)?;
        }
        Ok(())
    }

    /// Pairs take turns by sections, each with a position of its own in images and videos (M-RoPE, arXiv 2409.12191).
    /// Positions of text are the same in the first three sections, so text is rotated as by GPT-NeoX. `false`: the file has
    /// no sections, and the rotation stays.
    pub(crate) fn set_sections(&mut self, keys: &Keys<'_>) -> Result<bool> {
        const KEY: &str = "rope.dimension_sections";
        let sections: Vec<u32> = keys.optional(KEY)?.unwrap_or_default();
        if !matches!(sections[..], [time, height, ..] if time > 0 && height > 0) {
            return Ok(false);
        }
        let n_pairs: u64 = sections.iter().take(3).map(|&n| u64::from(n)).sum();
        if n_pairs < u64::from(self.params.n_dims / 2) {
            let expected = format!("{} pairs in the first three sections", self.params.n_dims / 2);
            return Err(keys.bad(KEY, format!("{sections:?}"), expected));
        }
        self.kind = RopeKind::Neox;
        (self.params.mode, self.windowed.mode) = (MODE_NEOX, MODE_NEOX);
        Ok(true)
    }

    /// How many elements of heads are rotated in layers with a window.
    pub(crate) fn set_windowed_dims(&mut self, keys: &Keys<'_>, head_dim: u64) -> Result<()> {
        let default = head_dim.min(self.params.n_dims.into());
        self.windowed.n_dims = n_dims(keys, "rope.dimension_count_swa", head_dim, default)?;
        Ok(())
    }

    /// Frequency factors of a file: one for each pair of the layers that rotate most.
    pub(crate) fn n_factors(&self) -> u64 {
        u64::from(self.params.n_dims.max(self.windowed.n_dims)) / 2
    }

    /// The rotation with this base, of positions as they are: windows are short, so some models stretch contexts only in
    /// layers without one.
    pub(crate) fn unstretched(&self, freq_base: f32) -> RopeParams {
        RopeParams { freq_base, freq_scale: 1.0, ext_factor: 0.0, ..self.params }
    }

    /// As `unstretched`, without a factor on rotations.
    pub(crate) fn plain(&self, freq_base: f32) -> RopeParams {
        RopeParams { attn_factor: 1.0, ..self.unstretched(freq_base) }
    }
}

/// Elements of a head that are rotated.
fn n_dims(keys: &Keys<'_>, key: &str, head_dim: u64, default: u64) -> Result<u32> {
    match keys.count_or(key, 1..=head_dim, default)? {
        odd if odd % 2 != 0 => Err(keys.bad(key, odd, "an even number")),
        even => Ok(even as u32),
    }
}
