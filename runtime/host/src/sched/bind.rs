//! Makes the graphs that cross the ABI: of a whole graph without memory, and of each split with memory.

use super::place::DeviceIdx;
use super::split::Split;
use crate::device::{Buffer, NodeDesc, RawGraph, RawGraphBuilder, TensorDesc};
use crate::error::{Error, Result};
use llmrt_abi::types as abi;
use llmrt_graph::{Graph, Kind, Tensor, TensorDef};
use std::collections::HashMap;

/// Where a tensor that owns bytes has them on one device.
#[derive(Clone)]
pub struct Place {
    /// Its memory.
    pub buffer: Buffer,
    /// First byte.
    pub offset: u64,
    /// Layout made by `seal`; 0: canonical.
    pub layout_id: u32,
}

/// The whole graph, for `supports`.
pub fn unbound(g: &Graph) -> Result<RawGraph> {
    build(g, 0..g.nodes.len(), &|_| None)
}

/// The nodes of a split, every tensor with memory on the split's device.
pub fn bound(
    g: &Graph,
    split: &Split,
    place: &dyn Fn(DeviceIdx, Tensor) -> Option<Place>,
) -> Result<RawGraph> {
    build(g, split.nodes.clone(), &|owner| place(split.device, owner))
}

/// A tensor's description; views are at their offset in the owner's place.
pub fn describe<'a>(def: &'a TensorDef, place: Option<&'a Place>) -> TensorDesc<'a> {
    TensorDesc {
        dtype: def.dtype,
        ne: def.ne,
        nb: def.nb,
        role: def.role as u32,
        flags: flags(def),
        layout_id: place.map_or(0, |p| p.layout_id),
        buffer: place.map(|p| &p.buffer),
        offset: place.map_or(0, |p| p.offset) + def.view.map_or(0, |(_, offset)| offset),
        view: None,
        name: &def.name,
    }
}

fn build(
    g: &Graph,
    nodes: std::ops::Range<usize>,
    place: &dyn Fn(Tensor) -> Option<Place>,
) -> Result<RawGraph> {
    let mut builder = RawGraphBuilder::new();
    let mut rows: HashMap<Tensor, u32> = HashMap::new();
    let mut row = |builder: &mut RawGraphBuilder, t: Tensor| -> Result<u32> {
        let owner = g.owner(t);
        for t in [owner, t] {
            if !rows.contains_key(&t) {
                let place = place(owner);
                let def = g.def(t);
                let view = def.view.and_then(|(base, offset)| Some((*rows.get(&base)?, offset)));
                rows.insert(t, builder.tensor(&TensorDesc { view, ..describe(def, place.as_ref()) })?);
            }
        }
        rows.get(&t).copied().ok_or_else(|| Error::invalid("graph", "a tensor without a row"))
    };
    for node in &g.nodes[nodes] {
        let mut srcs = Vec::with_capacity(node.src.len());
        for src in &node.src {
            srcs.push(match src {
                Some(t) => Some(row(&mut builder, *t)?),
                None => None,
            });
        }
        let dst = row(&mut builder, node.dst)?;
        let info = node.op.info();
        builder.node(&NodeDesc {
            op: info.id,
            op_version: info.version,
            dst,
            srcs: &srcs,
            params: &node.params,
        })?;
    }
    Ok(builder.build())
}

fn flags(def: &TensorDef) -> u32 {
    let kind = match def.kind {
        Kind::Weight => abi::TENSOR_WEIGHT,
        Kind::Input => abi::TENSOR_INPUT,
        Kind::State => abi::TENSOR_STATE,
        Kind::Computed => 0,
    };
    kind | if def.output { abi::TENSOR_OUTPUT } else { 0 }
}
