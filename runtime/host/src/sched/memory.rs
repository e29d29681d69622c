//! The memory graphs run in: weights, states kept between runs, and one arena per device that all graphs share.

use super::arena::Arena;
use super::bind::Place;
use super::place::{DeviceIdx, Placement};
use crate::device::{Buffer, Device, Staging, TensorDesc};
use crate::error::{Error, Result};
use crate::load::{self, ModelFiles, WeightRequest, Weights};
use llmrt_abi::types as abi;
use llmrt_graph::rows::{NeuronSplit, Part, layer_of};
use llmrt_graph::{Graph, Kind, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Weights, states, arenas.
pub struct Memory {
    devices: Vec<Arc<Device>>,
    /// For weights that a later graph reads on another device.
    files: Arc<ModelFiles>,
    weights: Weights,
    states: HashMap<String, State>,
    /// Devices of the states that have no memory yet.
    planned: HashMap<String, DeviceIdx>,
    arenas: Vec<Option<Buffer>>,
    staging: Vec<Option<Staging>>,
}

struct State {
    device: DeviceIdx,
    place: Place,
    /// Whether later graphs find it here, or may place it again.
    pinned: bool,
}

impl Memory {
    /// Memory on `devices` with the weights that were loaded from `files`.
    /// `planned` is the device of each state.
    pub fn new(
        devices: Vec<Arc<Device>>,
        files: Arc<ModelFiles>,
        weights: Weights,
        planned: HashMap<String, DeviceIdx>,
    ) -> Memory {
        let arenas = devices.iter().map(|_| None).collect();
        let staging = devices.iter().map(|_| None).collect();
        Memory { devices, files, weights, states: HashMap::new(), planned, arenas, staging }
    }

    /// An error if a file of which a device uses pages in place was truncated, or could not be read.
    pub fn check_files(&self) -> Result<()> {
        self.weights.check_files(&self.files).map_err(|e| Error::ModelFile { problem: e.to_string() })
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.weights.clear();
        self.states.clear();
        self.arenas.fill(None);
        self.staging.iter_mut().for_each(|staging| *staging = None);
    }

    /// Which devices hold which weights and states.
    pub fn homes(&self) -> HashMap<String, Vec<DeviceIdx>> {
        let mut homes: HashMap<String, Vec<DeviceIdx>> = HashMap::new();
        for device in 0..self.devices.len() {
            for (name, _) in self.weights.on(device) {
                homes.entry(name.to_string()).or_default().push(device);
            }
        }
        for (name, state) in self.states.iter().filter(|(_, s)| s.pinned) {
            homes.entry(name.clone()).or_default().push(state.device);
        }
        for (name, &device) in &self.planned {
            homes.entry(name.clone()).or_insert_with(|| vec![device]);
        }
        homes
    }

    /// Lets the next graph place states again; those that move take their bytes along.
    pub fn unpin_states(&mut self) {
        self.states.values_mut().for_each(|s| s.pinned = false);
        self.planned.clear();
    }

    /// Whether an arena must be recreated for arenas of these sizes. Whatever is bound to the old ones must go first:
    /// it keeps them alive, and both at once may not fit.
    pub fn must_grow(&self, arenas: &[Arena]) -> bool {
        arenas.iter().zip(&self.arenas).any(|(new, old)| new.total > old.as_ref().map_or(0, Buffer::size))
    }

    /// Allocates arenas of these sizes.
    pub fn reserve(&mut self, arenas: &[Arena]) -> Result<()> {
        for (d, arena) in arenas.iter().enumerate() {
            if arena.total > self.arenas[d].as_ref().map_or(0, Buffer::size) {
                self.arenas[d] = None;
                self.arenas[d] = Some(self.devices[d].alloc(0, arena.total, abi::USAGE_COMPUTE)?);
            }
        }
        Ok(())
    }

    /// Allocates staging memory of these sizes, where there is less. Nothing is bound to it.
    pub fn reserve_staging(&mut self, sizes: &[u64]) -> Result<()> {
        for (d, &size) in sizes.iter().enumerate() {
            if size > self.staging[d].as_ref().map_or(0, Staging::size) {
                self.staging[d] = None;
                self.staging[d] = Staging::new(&self.devices[d], size)?;
            }
        }
        Ok(())
    }

    /// A device's staging memory.
    pub fn staging(&mut self, device: DeviceIdx) -> Option<&mut Staging> {
        self.staging[device].as_mut()
    }

    /// The first bytes of a device's staging memory.
    pub fn result(&self, device: DeviceIdx, n_bytes: u64) -> Result<Option<&[u8]>> {
        self.staging[device].as_ref().map(|staging| staging.part(0..n_bytes)).transpose()
    }

    /// Allocates and clears the states of a graph that have no memory yet, and moves those whose home is another now.
    /// `true` when one moved, so that older bindings are stale.
    pub fn allocate_states(&mut self, g: &Graph, placement: &Placement) -> Result<bool> {
        let mut homes: Vec<_> =
            placement.home.iter().filter(|(t, _)| g.def(**t).kind == Kind::State).collect();
        homes.sort();
        let mut moved = false;
        for (&t, &device) in homes {
            let def = g.def(t);
            let n = def.n_bytes();
            let old = self.states.get_mut(&def.name);
            if let Some(state) = old.as_ref().filter(|s| s.place.buffer.size() != n) {
                let problem = format!("{n} bytes in this graph, {} before", state.place.buffer.size());
                return Err(Error::invalid(format!("state `{}`", def.name), problem));
            }
            if let Some(state) = old.filter(|s| s.device == device) {
                state.pinned = true;
                continue;
            }
            let buffer = self.devices[device].alloc(0, n, abi::USAGE_STATE)?;
            match self.states.get(&def.name) {
                Some(state) => {
                    let (to, from) = (TensorDesc::bytes(0, n), &state.place.buffer);
                    buffer.copy(&to, from, &to)?;
                    moved = true;
                }
                None => buffer.fill(0, n, 0)?,
            }
            let place = Place { buffer, offset: 0, layout_id: 0 };
            self.states.insert(def.name.clone(), State { device, place, pinned: true });
        }
        Ok(moved)
    }

    /// Loads weights that a graph reads on devices that do not have them yet.
    /// Parts by lists get those that devices have now.
    pub fn allocate_weights(
        &mut self,
        g: &Graph,
        placement: &Placement,
        neurons: &NeuronSplit,
    ) -> load::Result<()> {
        for (node, &device) in g.nodes.iter().zip(&placement.node) {
            for owner in node.src.iter().flatten().map(|&t| g.owner(t)) {
                let def = g.def(owner);
                if def.kind == Kind::Weight && self.weights.get(&def.name, device).is_none() {
                    let mut request = WeightRequest::new(g, owner, device, &self.devices[device]);
                    if let (Some(listed), Some(part)) = (&mut request.listed, Part::of_name(&def.name)) {
                        let lists = layer_of(part.whole).and_then(|layer| neurons.layers.get(&layer));
                        let list = lists.and_then(|lists| lists.get(part.index));
                        list.into_iter().for_each(|list| *listed = list.clone());
                    }
                    self.weights.add(&self.files, &request)?;
                }
            }
        }
        Ok(())
    }

    /// The weights, and the files that they are of.
    pub fn weights(&self) -> (&Weights, &ModelFiles) {
        (&self.weights, &self.files)
    }

    /// Where a tensor that owns bytes has them on a device.
    pub fn place(&self, g: &Graph, arenas: &[Arena], device: DeviceIdx, t: Tensor) -> Option<Place> {
        let def = g.def(t);
        match def.kind {
            Kind::Weight => {
                let placed = self.weights.get(&def.name, device)?;
                Some(Place {
                    buffer: placed.buffer.clone(),
                    offset: placed.offset,
                    layout_id: placed.layout_id,
                })
            }
            Kind::State => self.states.get(&def.name).filter(|s| s.device == device).map(|s| s.place.clone()),
            Kind::Input | Kind::Computed => {
                let offset = *arenas[device].offsets.get(&t)?;
                Some(Place { buffer: self.arenas[device].clone()?, offset, layout_id: 0 })
            }
        }
    }

    /// The states that have memory, by name, with their bytes.
    pub fn states(&self) -> Vec<(String, u64)> {
        let sizes = self.states.iter().map(|(name, s)| (name.clone(), s.place.buffer.size()));
        let mut sizes: Vec<_> = sizes.collect();
        sizes.sort();
        sizes
    }

    /// The memory of a state.
    pub fn state(&self, name: &str) -> Option<&Buffer> {
        self.states.get(name).map(|state| &state.place.buffer)
    }

    /// Bytes of staging memory by device.
    pub fn staged(&self) -> Vec<u64> {
        self.staging.iter().map(|staging| staging.as_ref().map_or(0, Staging::size)).collect()
    }

    /// Bytes allocated: of states, and of arenas by device.
    pub fn allocated(&self) -> (u64, Vec<u64>) {
        let states = self.states.values().map(|s| s.place.buffer.size()).sum();
        (states, self.arenas.iter().map(|a| a.as_ref().map_or(0, Buffer::size)).collect())
    }
}
