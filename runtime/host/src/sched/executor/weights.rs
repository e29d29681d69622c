//! Weights of divided networks, which change places between runs.

use super::Executor;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::load::{self, RewriteCost, WeightRequest};
use llmrt_graph::rows::NeuronSplit;
use std::sync::Arc;

/// Of a device, if it is one's.
pub(super) fn error(e: load::Error) -> Error {
    e.of_device().cloned().unwrap_or_else(|| Error::Weights { problem: e.to_string() })
}

impl Executor {
    /// The neurons of each device, of networks that are in parts by lists.
    pub fn neurons(&self) -> &Arc<NeuronSplit> {
        &self.sharing.neurons
    }

    /// Records that devices have other neurons now, as many as before: those of [`Executor::rewrite`].
    pub fn set_neurons(&mut self, neurons: Arc<NeuronSplit>) {
        self.sharing.neurons = neurons;
    }

    /// What changes of a part's list cost.
    pub fn rewrite_cost(&self, request: &WeightRequest) -> Result<RewriteCost> {
        self.memory.weights().0.rewrite_cost(request).map_err(error)
    }

    /// Writes a part of a weight again, on all devices that have it, after its list has changed at `changed`, and returns the bytes that
    /// were written. After an error its bytes are any. Takes the executor for itself, so that no run reads them meanwhile.
    pub fn rewrite(&mut self, request: &WeightRequest, changed: &[u32]) -> Result<u64> {
        let (weights, files) = self.memory.weights();
        let rows =
            self.devices.iter().enumerate().filter(|(row, _)| weights.get(&request.name, *row).is_some());
        let write = |(row, device): (usize, &Arc<Device>)| {
            let request = WeightRequest { row, device: device.clone(), ..request.clone() };
            weights.rewrite(files, &request, changed).map_err(error)
        };
        rows.map(write).sum()
    }
}
