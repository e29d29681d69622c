//! How much room devices have for neurons, found by placing: first with all neurons on the CPU, then with as many as fit.

use super::{Hot, IndexUse, MARGIN, NeuronOptions, free, has_source, hot, split};
use crate::error::{Error, Result};
use crate::memory::DevicePlan;
use crate::options::EngineOptions;
use llmrt_graph::Graph;
use llmrt_graph::rows::{Network, NeuronSplit};
use llmrt_host::load::ModelFiles;
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::resolve::PlacementState;
use llmrt_models::SparseMode;
use std::collections::HashSet;
use std::sync::Arc;

/// The bytes on each device that a placement takes.
type PlanOf<'a> = dyn Fn(&PlacementState) -> Result<Vec<DevicePlan>> + 'a;

/// A search for the neurons of each device.
pub(crate) struct Dividing<'a> {
    networks: Vec<Network>,
    options: &'a NeuronOptions,
    /// Bytes of the first device that may be used, as long as it is that one.
    pub budget: Option<u64>,
    /// Bytes that turned out to be too many, by device.
    too_many: Vec<u64>,
    is_divided: bool,
}

impl<'a> Dividing<'a> {
    /// Of the sparse networks of a graph; of none where the options rule it out: matrices by rows, small inputs as zeros, no
    /// index, and strict placement of a model that was given no budget.
    pub fn new(g: &Graph, options: &'a EngineOptions) -> Dividing<'a> {
        let budget = options.neurons.vram_budget;
        let is_given = budget.is_some() || options.neurons.split.is_some();
        let is_possible = options.split == SplitMode::Layers
            && options.neurons.index != IndexUse::Off
            && options.sparse.mode != SparseMode::Magnitude
            && (!options.strict || is_given);
        let networks = if is_possible { g.networks() } else { Vec::new() };
        Dividing {
            networks: networks.into_iter().filter(|network| network.is_sparse).collect(),
            options: &options.neurons,
            budget,
            too_many: Vec::new(),
            is_divided: false,
        }
    }

    /// The neurons of each device; none are divided where all fit, and where nothing is given to choose them by. `known` is
    /// used for trial placements. Without a budget, what is wrong with files beside the model is a note.
    pub fn split(
        &mut self,
        files: &ModelFiles,
        known: &mut PlacementState,
        plan_of: &PlanOf<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Arc<NeuronSplit>> {
        self.is_divided = false;
        let found = self.found(files, known, plan_of, notes);
        match found {
            Err(Error::SparseFile { path, problem }) if self.budget.is_none() => {
                add(notes, format!("{path}: {problem}; neurons are not divided among devices"));
                Ok(Arc::default())
            }
            found => found,
        }
    }

    fn found(
        &mut self,
        files: &ModelFiles,
        known: &mut PlacementState,
        plan_of: &PlanOf<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Arc<NeuronSplit>> {
        let n_devices = known.budget.len();
        if let (Some(split), true) = (&self.options.split, n_devices > 1) {
            return Ok(split.clone());
        }
        // What is for one device stays whole there.
        let is_free = |network: &Network| !network.weights.iter().any(|w| known.assigned.contains_key(w));
        let is_free: Vec<bool> = self.networks.iter().map(is_free).collect();
        let networks = free(self.networks.clone(), &is_free);
        let lacks_source = |budget: Option<u64>| -> Result<bool> {
            Ok(budget.is_none() && !has_source(files, &self.networks, self.options)?)
        };
        if n_devices < 2 || networks.is_empty() || lacks_source(self.budget)? {
            return Ok(Arc::default());
        }
        let none = vec![vec![Vec::new(); networks.len()]; n_devices - 1];
        known.neurons = Arc::new(split(&networks, &none));
        let rows = plan_of(known)?;
        self.too_many.resize(n_devices, 0);
        let all: u64 = networks.iter().map(|network| network.bytes).sum();
        let used = |row: &DevicePlan| row.weights + row.kv + row.compute;
        let first = &rows[0];
        let free_bytes = first.free.unwrap_or(0);
        if used(first) > free_bytes {
            if self.budget.is_none() {
                return Ok(Arc::default());
            }
            let is_noted = notes.iter().any(|note| note.contains("of the dense parts"));
            let note = (!is_noted).then(|| {
                format!(
                    "{}: the budget of {free_bytes} bytes is less than the {} of the dense parts, so all neurons are on the \
                     CPU",
                    first.device,
                    used(first)
                )
            });
            notes.extend(note);
            return Ok(known.neurons.clone());
        }
        if self.too_many.iter().all(|&n| n == 0) && free_bytes - used(first) >= all {
            return Ok(Arc::default());
        }
        let room = rows[..n_devices - 1].iter().enumerate().map(|(d, row)| {
            let margin = if d == 0 && self.budget.is_some() { 0 } else { MARGIN };
            let taken = used(row).saturating_add(margin).saturating_add(self.too_many[d]);
            row.free.unwrap_or(0).saturating_sub(taken)
        });
        let mut lists = Vec::new();
        let (mut sum, mut taken) = (0, vec![HashSet::new(); networks.len()]);
        for room in room {
            sum += room;
            let Hot { lists: up_to_here, note } = hot(files, &self.networks, &is_free, sum, self.options)?;
            note.into_iter().for_each(|note| add(notes, note));
            // What the devices before have is theirs.
            let rest = up_to_here.into_iter().zip(&mut taken);
            lists.push(
                rest.map(|(list, taken)| list.into_iter().filter(|&id| taken.insert(id)).collect()).collect(),
            );
        }
        self.is_divided = true;
        Ok(Arc::new(split(&networks, &lists)))
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

    /// A device is not used any more: the others take its number on.
    pub fn leave_out(&mut self, device: usize) {
        if device < self.too_many.len() {
            self.too_many.remove(device);
        }
        if device == 0 {
            self.budget = None;
        }
    }
}

/// Adds a note once.
fn add(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
