//! How much room devices have for neurons, found by placing: first with all neurons on the CPU, then with as many as fit.

use super::{Hot, IndexUse, MARGIN, NeuronOptions, has_source, hot, split};
use crate::error::Result;
use crate::memory::DevicePlan;
use crate::options::EngineOptions;
use llmrt_graph::Graph;
use llmrt_graph::rows::{Network, NeuronSplit};
use llmrt_host::load::ModelFiles;
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::resolve::PlacementState;
use std::collections::HashSet;
use std::sync::Arc;

/// The bytes on each device that a placement takes.
type PlanOf<'a> = dyn Fn(&PlacementState) -> Result<Vec<DevicePlan>> + 'a;

/// A search for the neurons of each device.
pub(crate) struct Dividing<'a> {
    networks: Vec<Network>,
    options: &'a NeuronOptions,
    /// Bytes that turned out to be too many, by device.
    too_many: Vec<u64>,
    is_divided: bool,
}

impl<'a> Dividing<'a> {
    /// Of the sparse networks of a graph; of none where the options rule it out.
    pub fn new(g: &Graph, options: &'a EngineOptions) -> Dividing<'a> {
        let is_possible = options.split == SplitMode::Layers && options.neurons.index != IndexUse::Off;
        let networks = if is_possible { g.networks() } else { Vec::new() };
        Dividing {
            networks: networks.into_iter().filter(|network| network.is_sparse).collect(),
            options: &options.neurons,
            too_many: Vec::new(),
            is_divided: false,
        }
    }

    /// The neurons of each device; none are divided where all fit, and where nothing is given to choose them by. `known` is
    /// used for trial placements.
    pub fn split(
        &mut self,
        files: &ModelFiles,
        known: &mut PlacementState,
        plan_of: &PlanOf<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Arc<NeuronSplit>> {
        let n_devices = known.budget.len();
        self.is_divided = false;
        if n_devices < 2 || self.networks.is_empty() {
            return Ok(Arc::default());
        }
        if let Some(split) = &self.options.split {
            return Ok(split.clone());
        }
        if self.options.vram_budget.is_none() && !has_source(files, self.options) {
            return Ok(Arc::default());
        }
        let none = vec![vec![Vec::new(); self.networks.len()]; n_devices - 1];
        known.neurons = Arc::new(split(&self.networks, &none));
        let rows = plan_of(known)?;
        self.too_many.resize(n_devices, 0);
        let mut room = Vec::new();
        for (d, row) in rows[..n_devices - 1].iter().enumerate() {
            let free = row.free.unwrap_or(0);
            let limit = match self.options.vram_budget.filter(|_| d == 0) {
                Some(_) => free,
                None => free.saturating_sub(MARGIN),
            };
            let used = row.weights + row.kv + row.compute;
            if d == 0 && used > limit {
                if self.options.vram_budget.is_some() {
                    add(
                        notes,
                        format!(
                            "{}: {limit} bytes are less than the {used} of the dense parts, so that all neurons are on the CPU",
                            row.device
                        ),
                    );
                    return Ok(known.neurons.clone());
                }
                return Ok(Arc::default());
            }
            room.push(limit.saturating_sub(used).saturating_sub(self.too_many[d]));
        }
        let all: u64 = self.networks.iter().map(|network| network.bytes).sum();
        if self.too_many.iter().all(|&n| n == 0) && room[0] >= all {
            return Ok(Arc::default());
        }
        let mut lists = Vec::new();
        let (mut sum, mut taken) = (0, vec![HashSet::new(); self.networks.len()]);
        for room in room {
            sum += room;
            let Hot { lists: up_to_here, note } = hot(files, &self.networks, sum, self.options)?;
            note.into_iter().for_each(|note| add(notes, note));
            // What the devices before have is theirs.
            let rest = up_to_here.into_iter().zip(&mut taken);
            lists.push(
                rest.map(|(list, taken)| list.into_iter().filter(|&id| taken.insert(id)).collect()).collect(),
            );
        }
        self.is_divided = true;
        Ok(Arc::new(split(&self.networks, &lists)))
    }

    /// Takes bytes off what a device has for neurons, if it has any.
    pub fn take_off(&mut self, device: usize, bytes: u64) -> bool {
        let all: u64 = self.networks.iter().map(|network| network.bytes).sum();
        let Some(too_many) = self.too_many.get_mut(device).filter(|n| self.is_divided && **n <= all) else {
            return false;
        };
        *too_many += bytes;
        true
    }
}

/// Adds a note once.
fn add(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
