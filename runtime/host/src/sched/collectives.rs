//! Whether devices put their parts together themselves, and the calls that do it.

use super::bind::{Place, describe};
use super::place::DeviceIdx;
use super::split::Collective;
use crate::device::{Buffer, Device, Group, Stream, TensorDesc};
use crate::error::{Error, Result};
use llmrt_graph::rows::JoinKind;
use llmrt_graph::{Graph, Tensor};
use std::sync::Arc;

/// The group of all devices before the baseline, or why there is none.
#[derive(Clone, Default)]
pub struct Collectives {
    group: Option<Group>,
    /// In words.
    reason: String,
}

impl Collectives {
    /// A group of all `devices` but the last one, the baseline. It takes memory of them, so it is made before weights are
    /// loaded.
    pub fn of(devices: &[Arc<Device>]) -> Collectives {
        let members = &devices[..devices.len().saturating_sub(1)];
        if members.len() < 2 {
            return Collectives { group: None, reason: "there is one device".into() };
        }
        match Group::new(members) {
            Ok(group) => Collectives { group: Some(group), reason: String::new() },
            Err(e) => Collectives { group: None, reason: e.to_string() },
        }
    }

    /// The group, if it is of the devices that share the matrices; else the reason there is none.
    pub(super) fn among(
        &self,
        devices: &[Arc<Device>],
        sharing: &[DeviceIdx],
    ) -> std::result::Result<&Group, String> {
        let group = self.group.as_ref().ok_or(&self.reason)?;
        let same = |(&d, member): (&DeviceIdx, &Arc<Device>)| Arc::ptr_eq(&devices[d], member);
        match sharing.len() == group.devices().len() && sharing.iter().zip(group.devices()).all(same) {
            true => Ok(group),
            false => Err("the devices take different nodes".into()),
        }
    }

    /// The group.
    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }
}

/// A collective with the memory of its tensors, by rank.
pub(super) struct BoundCollective {
    what: Collective,
    parts: Vec<Place>,
    wholes: Vec<Place>,
}

/// Finds the memory of a collective's tensors on the group's devices.
pub(super) fn bind(
    what: &Collective,
    group: &[DeviceIdx],
    place: &dyn Fn(DeviceIdx, Tensor) -> Option<Place>,
) -> Result<BoundCollective> {
    let find = |d: DeviceIdx, t: Tensor| {
        place(d, t).ok_or_else(|| Error::invalid("graph", "a tensor of a collective without memory"))
    };
    let (parts, whole): (&[Tensor], Tensor) = match what {
        Collective::Join(_, parts, whole) => (parts, *whole),
        Collective::Broadcast(t, _) => (&[], *t),
    };
    let parts = parts.iter().zip(group).map(|(&t, &d)| find(d, t)).collect::<Result<_>>()?;
    let wholes = group.iter().map(|&d| find(d, whole)).collect::<Result<_>>()?;
    Ok(BoundCollective { what: what.clone(), parts, wholes })
}

/// Enqueues a collective on the streams of the group's devices.
pub(super) fn run(g: &Graph, group: &Group, streams: &[&Stream], bound: &BoundCollective) -> Result<()> {
    match &bound.what {
        Collective::Broadcast(t, root) => {
            let tensors: Vec<_> = bound.wholes.iter().map(|place| in_memory(g, *t, place)).collect();
            group.broadcast(streams, *root, &tensors)
        }
        Collective::Join(kind, parts, whole) => {
            let src: Vec<_> =
                parts.iter().zip(&bound.parts).map(|(&t, place)| in_memory(g, t, place)).collect();
            let dst: Vec<_> = bound.wholes.iter().map(|place| in_memory(g, *whole, place)).collect();
            match kind {
                JoinKind::Sum => group.all_reduce(streams, &src, &dst),
                JoinKind::Rows => group.all_gather(streams, &src, &dst),
            }
        }
    }
}

fn in_memory<'a>(g: &'a Graph, t: Tensor, place: &'a Place) -> (&'a Buffer, TensorDesc<'a>) {
    (&place.buffer, describe(g.def(t), Some(place)))
}
