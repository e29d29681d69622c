//! What a placement may not do: take more memory than is free, or fall back where that is forbidden.

use super::report::Report;
use crate::device::Device;
use crate::error::{Error, Result};
use std::sync::Arc;

/// Fails when a node would not run on the first device, or on the one that its layer is for.
pub fn strict(report: &Report) -> Result<()> {
    if report.n_fallbacks() == 0 {
        return Ok(());
    }
    Err(Error::Fallback { n_nodes: report.n_fallbacks(), list: report.to_string() })
}

/// Bytes that weights and states may take: what is free, less a share for scratch memory where that is managed here and
/// comes out of the same. The baseline has no limit: it maps weights, and what it allocates is compared with what is free
/// before.
pub fn budget(devices: &[Arc<Device>]) -> Vec<Option<u64>> {
    let limit = |(d, device): (usize, &Arc<Device>)| match d + 1 == devices.len() {
        true => None,
        // A device that does not report it gets nothing.
        false => Some(device.memory().map_or(0, |(free, _)| free - for_scratch(device, free))),
    };
    devices.iter().enumerate().map(limit).collect()
}

/// A sixteenth, in whole MiB.
fn for_scratch(device: &Arc<Device>, free: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    if device.has_pools() { free / 16 / MIB * MIB } else { 0 }
}

/// Weights and states were shared out when the model was loaded, and the rest of a device's memory is for computing:
/// what comes on top goes to the baseline.
pub(super) fn nothing_new(n_devices: usize) -> Vec<Option<u64>> {
    let mut budget = vec![Some(0); n_devices];
    budget[n_devices - 1] = None;
    budget
}
