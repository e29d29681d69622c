//! State space models: the `ssm.*` keys.

use super::{Keys, MAX_DIM};
use crate::error::Result;

/// Sizes of a selective state space model (arXiv 2312.00752, 2405.21060) or of a delta net (2412.06464). All 0 in models
/// that are none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SsmConfig {
    /// Taps of the convolution.
    pub n_taps: u64,
    /// Elements of a token between the layer's matrices.
    pub n_inner: u64,
    /// Elements of the state for each of these; of a delta net those of a key.
    pub n_state: u64,
    /// Heads, of `n_inner / n_head` elements.
    pub n_head: u64,
    /// Groups of heads that share B and C, in a delta net K and Q; 0: all heads share them, and they are made of the
    /// convolution's result.
    pub n_group: u64,
    /// Elements between the two matrices of Δ; 0: it has one.
    pub dt_rank: u64,
    /// Whether Δ, B and C are normed, even without weights.
    pub has_norms: bool,
    /// Added to the sum of squares where a delta net makes rows of length 1; 0: as in norms.
    pub unit_eps: f32,
    /// How a delta net with a decay for each element of a key has it.
    pub decay: DecayGate,
}

/// How the log of a decay is made of a number r and of a, of which each head has one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum DecayGate {
    /// a · softplus(r).
    #[default]
    Softplus,
    /// bound · sigmoid(factor · a · r).
    Sigmoid {
        /// Below 0: the least log.
        bound: f32,
        /// 1, or -1 where the file has a below 0.
        factor: f32,
    },
}

impl SsmConfig {
    /// Sizes of Mamba 2 and of delta nets.
    pub(crate) fn read(keys: &Keys<'_>) -> Result<SsmConfig> {
        let ssm = SsmConfig {
            n_head: keys.count("ssm.time_step_rank", 1..=MAX_DIM)?,
            n_group: keys.count_or("ssm.group_count", 1..=MAX_DIM, 1)?,
            ..SsmConfig::read_common(keys)?
        };
        if !ssm.n_inner.is_multiple_of(ssm.n_head) {
            let expected = format!("a divisor of {} elements", ssm.n_inner);
            return Err(keys.bad("ssm.time_step_rank", ssm.n_head, expected));
        }
        if !ssm.n_head.is_multiple_of(ssm.n_group) {
            let expected = format!("a divisor of the {} heads", ssm.n_head);
            return Err(keys.bad("ssm.group_count", ssm.n_group, expected));
        }
        Ok(ssm)
    }

    /// Sizes of Mamba, in which each element is a head.
    pub(crate) fn read_mamba(keys: &Keys<'_>) -> Result<SsmConfig> {
        let ssm = SsmConfig::read_common(keys)?;
        Ok(SsmConfig {
            n_head: ssm.n_inner,
            dt_rank: keys.count("ssm.time_step_rank", 1..=MAX_DIM)?,
            has_norms: keys.optional("ssm.dt_b_c_rms")?.unwrap_or(false),
            ..ssm
        })
    }

    /// Sizes of Kimi Delta Attention (arXiv 2510.26692) with so many heads.
    pub(crate) fn read_kda(keys: &Keys<'_>, n_head: u64) -> Result<SsmConfig> {
        if n_head == 0 {
            return Err(keys.bad("attention.head_count", 0, "1 or more"));
        }
        let n_state = keys.count("kda.head_dim", 1..=MAX_DIM / n_head)?;
        Ok(SsmConfig {
            n_taps: keys.count("ssm.conv_kernel", 2..=MAX_TAPS)?,
            n_inner: n_state * n_head,
            n_state,
            n_head,
            n_group: n_head,
            ..SsmConfig::default()
        })
    }

    /// Layers whose keys and values are a state, in models that have a list of them or attention in every n-th layer.
    pub(crate) fn read_recurrent_layers(keys: &Keys<'_>, n_layer: usize, period: u64) -> Result<Vec<bool>> {
        if let Some(flags) = keys.flags("attention.recurrent_layers", n_layer)? {
            return Ok(flags);
        }
        let period = keys.count_or("full_attention_interval", 1..=MAX_DIM, period)? as usize;
        Ok((0..n_layer).map(|il| (il + 1) % period != 0).collect())
    }

    fn read_common(keys: &Keys<'_>) -> Result<SsmConfig> {
        Ok(SsmConfig {
            n_taps: keys.count("ssm.conv_kernel", 2..=MAX_TAPS)?,
            n_inner: keys.count("ssm.inner_size", 1..=MAX_DIM)?,
            n_state: keys.count("ssm.state_size", 1..=MAX_DIM)?,
            ..SsmConfig::default()
        })
    }

    /// Channels of the convolution: x, B and C, unless these are made of its result.
    pub fn n_conv(&self) -> u64 {
        self.n_inner + 2 * self.n_group * self.n_state
    }

    /// Elements of the scan's state.
    pub fn scan_row(&self) -> u64 {
        self.n_state * self.n_inner
    }
}

/// Far above every model.
pub(crate) const MAX_TAPS: u64 = 1 << 8;
