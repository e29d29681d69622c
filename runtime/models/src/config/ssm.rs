//! State space models: the `ssm.*` keys.

use super::{Keys, MAX_DIM};
use crate::error::Result;

/// Sizes of a selective state space model (arXiv 2312.00752, 2405.21060). All 0 in models that are none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SsmConfig {
    /// Taps of the convolution.
    pub n_taps: u64,
    /// Elements of a token between the layer's matrices.
    pub n_inner: u64,
    /// Elements of the state for each of these.
    pub n_state: u64,
    /// Heads, of `n_inner / n_head` elements.
    pub n_head: u64,
    /// Groups of heads that share B and C.
    pub n_group: u64,
}

impl SsmConfig {
    pub(crate) fn read(keys: &Keys<'_>) -> Result<SsmConfig> {
        let n_inner = keys.count("ssm.inner_size", 1..=MAX_DIM)?;
        let n_head = keys.count("ssm.time_step_rank", 1..=MAX_DIM)?;
        let n_group = keys.count_or("ssm.group_count", 1..=MAX_DIM, 1)?;
        if n_inner % n_head != 0 {
            return Err(keys.bad("ssm.time_step_rank", n_head, format!("a divisor of {n_inner} elements")));
        }
        if n_head % n_group != 0 {
            return Err(keys.bad("ssm.group_count", n_group, format!("a divisor of the {n_head} heads")));
        }
        Ok(SsmConfig {
            n_taps: keys.count("ssm.conv_kernel", 2..=MAX_TAPS)?,
            n_inner,
            n_state: keys.count("ssm.state_size", 1..=MAX_DIM)?,
            n_head,
            n_group,
        })
    }

    /// Channels of the convolution: x, B and C.
    pub fn n_conv(&self) -> u64 {
        self.n_inner + 2 * self.n_group * self.n_state
    }

    /// Elements of the convolution's state: the columns before the next token.
    pub fn conv_row(&self) -> u64 {
        (self.n_taps - 1) * self.n_conv()
    }

    /// Elements of the scan's state.
    pub fn scan_row(&self) -> u64 {
        self.n_state * self.n_inner
    }
}

/// Far above every model.
const MAX_TAPS: u64 = 1 << 8;
