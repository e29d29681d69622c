//! A graph with memory and plans: what is bound once and run often.

use super::arena::Arena;
use super::bind::{self, Place};
use super::collectives::{self, BoundCollective};
use super::memory::Memory;
use super::place::DeviceIdx;
use super::resolve::Resolved;
use super::split::{Copied, Split};
use crate::device::{BackendPlan, Event, Stream};
use crate::error::{Error, Result};
use llmrt_graph::Tensor;
use std::ops::Range;

/// A graph with memory and plans.
pub(super) struct Prepared {
    pub resolved: Resolved,
    pub arenas: Vec<Arena>,
    pub splits: Vec<BoundSplit>,
    /// Number of the executor's last run of it.
    pub last_run: u64,
}

/// A split that can be run.
pub(super) struct BoundSplit {
    pub device: DeviceIdx,
    /// What it needs from other devices, before its plan runs: first what they put together, then copies.
    pub collectives: Vec<BoundCollective>,
    pub copies: Vec<Copy>,
    /// Copies that are enqueued after its plan: of which split, and which of that one's.
    pub begins: Vec<(usize, usize)>,
    /// `None` without nodes, as at the end of a graph.
    pub plan: Option<BackendPlan>,
    /// Rows of the graph.
    pub nodes: Range<usize>,
}

/// A tensor on its way between devices.
pub(super) struct Copy {
    pub tensor: Tensor,
    pub from: (DeviceIdx, Place),
    pub to: Place,
    /// Keeps the source from being overwritten early, where both devices work asynchronously.
    pub done: Option<Event>,
    /// The split after which it is enqueued; `None`: it is made in front of its own.
    pub after: Option<usize>,
    /// Of one that is enqueued early and passes through the host: when it is there.
    pub read: Option<Event>,
}

/// One plan per split, and where its copies come from and go to. Streams are by device.
pub(super) fn bind_splits(
    resolved: &Resolved,
    arenas: &[Arena],
    memory: &Memory,
    streams: &[Stream],
    uid: u64,
) -> Result<Vec<BoundSplit>> {
    let g = &resolved.graph;
    let place = |device: DeviceIdx, t: Tensor| memory.place(g, arenas, device, t);
    let bind_split = |(i, split): (usize, &Split)| -> Result<BoundSplit> {
        let plan = match split.nodes.is_empty() {
            true => None,
            false => {
                let mut raw = bind::bound(g, split, &place)?;
                raw.set_uid(uid.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(i as u64));
                Some(streams[split.device].plan(raw)?)
            }
        };
        let collectives = split.collectives.iter().map(|c| collectives::bind(c, &resolved.group, &place));
        let collectives = collectives.collect::<Result<_>>()?;
        let bind = |copied: &Copied| bind_copy(*copied, split.device, streams, &place);
        let copies = split.copies.iter().map(bind).collect::<Result<_>>()?;
        let (device, nodes) = (split.device, split.nodes.clone());
        Ok(BoundSplit { device, collectives, copies, begins: Vec::new(), plan, nodes })
    };
    let mut splits = resolved.splits.iter().enumerate().map(bind_split).collect::<Result<Vec<_>>>()?;
    for reader in 0..splits.len() {
        for c in 0..splits[reader].copies.len() {
            if let Some(maker) = splits[reader].copies[c].after {
                splits[maker].begins.push((reader, c));
            }
        }
    }
    Ok(splits)
}

fn bind_copy(
    Copied { tensor, from, after }: Copied,
    to: DeviceIdx,
    streams: &[Stream],
    place: &dyn Fn(DeviceIdx, Tensor) -> Option<Place>,
) -> Result<Copy> {
    let missing = || Error::invalid("graph", "a copied tensor without memory");
    let (source, target) = (streams[from].device(), streams[to].device());
    let is_within = source.plugin() == target.plugin();
    let done = if is_within { Some(target.event()?) } else { None };
    // Without an event it is made when it is needed.
    let read = after.filter(|_| !is_within).and_then(|_| source.event().ok());
    let after = after.filter(|_| is_within || read.is_some());
    Ok(Copy {
        tensor,
        from: (from, place(from, tensor).ok_or_else(missing)?),
        to: place(to, tensor).ok_or_else(missing)?,
        done,
        after,
        read,
    })
}
