//! The memory graphs run in: weights, states kept between runs, and one arena per device that all graphs share.

use super::arena::Arena;
use super::bind::Place;
use super::place::{DeviceIdx, Placement};
use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::load::{self, ModelFiles, Want, Weights};
use llmrt_abi::types as abi;
use llmrt_graph::{Graph, Kind, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Weights, states, arenas.
pub struct Memory {
    devices: Vec<Arc<Device>>,
    /// For weights that a later graph wants on another device.
    files: ModelFiles,
    weights: Weights,
    states: HashMap<String, State>,
    arenas: Vec<Option<Buffer>>,
}

struct State {
    device: DeviceIdx,
    place: Place,
}

impl Memory {
    /// Memory on `devices` with the weights that were loaded from `files`.
    pub fn new(devices: Vec<Arc<Device>>, files: ModelFiles, weights: Weights) -> Memory {
        let arenas = devices.iter().map(|_| None).collect();
        Memory { devices, files, weights, states: HashMap::new(), arenas }
    }

    /// Which devices hold which weights and states.
    pub fn homes(&self) -> HashMap<String, Vec<DeviceIdx>> {
        let mut homes: HashMap<String, Vec<DeviceIdx>> = HashMap::new();
        for device in 0..self.devices.len() {
            for (name, _) in self.weights.on(device) {
                homes.entry(name.to_string()).or_default().push(device);
            }
        }
        for (name, state) in &self.states {
            homes.entry(name.clone()).or_default().push(state.device);
        }
        homes
    }

    /// Makes room for arenas of these sizes. `true` when one was allocated anew, so that older bindings are stale.
    pub fn reserve(&mut self, arenas: &[Arena]) -> Result<bool> {
        let mut moved = false;
        for (d, arena) in arenas.iter().enumerate() {
            let have = self.arenas[d].as_ref().map_or(0, Buffer::size);
            if arena.total > have {
                // The old one goes first: both at once may not fit.
                self.arenas[d] = None;
                self.arenas[d] = Some(self.devices[d].alloc(0, arena.total, abi::USAGE_COMPUTE)?);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Allocates and clears the states of a graph that have no memory yet.
    pub fn allocate_states(&mut self, g: &Graph, placement: &Placement) -> Result<()> {
        let mut homes: Vec<_> =
            placement.home.iter().filter(|(t, _)| g.def(**t).kind == Kind::State).collect();
        homes.sort();
        for (&t, &device) in homes {
            let def = g.def(t);
            match self.states.get(&def.name) {
                Some(state) if state.place.buffer.size() == def.n_bytes() => {}
                Some(state) => {
                    let problem = format!(
                        "{} bytes in this graph, {} before",
                        def.n_bytes(),
                        state.place.buffer.size()
                    );
                    return Err(Error::invalid(format!("state `{}`", def.name), problem));
                }
                None => {
                    let buffer = self.devices[device].alloc(0, def.n_bytes(), abi::USAGE_STATE)?;
                    buffer.fill(0, def.n_bytes(), 0)?;
                    let place = Place { buffer, offset: 0, layout_id: 0 };
                    self.states.insert(def.name.clone(), State { device, place });
                }
            }
        }
        Ok(())
    }

    /// Loads weights that a graph wants on devices that do not have them yet.
    pub fn allocate_weights(&mut self, g: &Graph, placement: &Placement) -> load::Result<()> {
        for (node, &device) in g.nodes.iter().zip(&placement.node) {
            for owner in node.src.iter().flatten().map(|&t| g.owner(t)) {
                let def = g.def(owner);
                if def.kind == Kind::Weight && self.weights.get(&def.name, device).is_none() {
                    self.weights.add(&self.files, &Want::new(def, device, &self.devices[device]))?;
                }
            }
        }
        Ok(())
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

    /// Bytes allocated: of states, and of arenas by device.
    pub fn allocated(&self) -> (u64, Vec<u64>) {
        let states = self.states.values().map(|s| s.place.buffer.size()).sum();
        (states, self.arenas.iter().map(|a| a.as_ref().map_or(0, Buffer::size)).collect())
    }
}
