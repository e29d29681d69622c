//! Cuts the node list into splits: runs of nodes on one device, and the tensors copied in before each.

mod early;

use super::layers::listed;
use super::place::{DeviceIdx, Placement};
use llmrt_graph::rows::{Join, JoinKind};
use llmrt_graph::{Graph, Kind, Tensor};
use std::collections::HashMap;
use std::ops::Range;

/// A run of nodes on one device.
#[derive(Clone, PartialEq, Debug)]
pub struct Split {
    /// Where it runs.
    pub device: DeviceIdx,
    /// Rows of the graph's node list.
    pub nodes: Range<usize>,
    /// What the devices of the group put together before all else.
    pub collectives: Vec<Collective>,
    /// Owner tensors that must be there first.
    pub copies: Vec<Copied>,
}

/// An owner tensor that a split needs from another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Which.
    pub tensor: Tensor,
    /// The device that it comes from.
    pub from: DeviceIdx,
    /// The split after which the copy is enqueued, where the device goes on with other work after it; `None`: it is made when
    /// it is needed.
    pub after: Option<usize>,
}

/// What the devices of the group do together; each then has the result.
#[derive(Clone, PartialEq, Debug)]
pub enum Collective {
    /// Parts, by rank, become a whole.
    Join(JoinKind, Vec<Tensor>, Tensor),
    /// A tensor of this rank goes to all.
    Broadcast(Tensor, usize),
}

impl Collective {
    /// Its tensors on a rank.
    pub fn on(&self, rank: usize) -> impl Iterator<Item = Tensor> {
        let (part, whole) = match self {
            Collective::Join(_, parts, whole) => (parts.get(rank).copied(), *whole),
            Collective::Broadcast(t, _) => (None, *t),
        };
        part.into_iter().chain([whole])
    }
}

/// Devices that put parts together, by rank, and where parts come together.
#[derive(Clone, Copy, Default)]
pub struct Together<'a> {
    /// The devices; none if there is no group.
    pub group: &'a [DeviceIdx],
    /// In the order of their nodes.
    pub joins: &'a [Join],
    /// Whether the group joins rows, and copies to all.
    pub rows: bool,
    /// The same of copies from one to all.
    pub broadcasts: bool,
}

impl Together<'_> {
    /// The join that starts at a node, if the group can do it: its parts are on the group's devices in order.
    fn at(&self, i: usize, made_on: impl Fn(Tensor) -> Option<DeviceIdx>) -> Option<&Join> {
        let join = self.joins.iter().find(|join| join.nodes.start == i)?;
        let in_order = join.parts.iter().map(|&t| made_on(t)).eq(self.group.iter().map(|&d| Some(d)));
        (in_order && (join.kind == JoinKind::Sum || self.rows)).then_some(join)
    }
}

/// Splits in execution order. A tensor is copied to a device at most once.
pub fn split(g: &Graph, placement: &Placement, together: Together<'_>) -> Vec<Split> {
    let mut cut = Cut { g, together, splits: Vec::new(), pending: Vec::new(), places: HashMap::new() };
    let mut i = 0;
    while i < g.nodes.len() {
        match together.at(i, |t| cut.places.get(&g.owner(t)).map(|place| place.made_on)) {
            Some(join) => {
                cut.join(join);
                i = join.nodes.end;
            }
            None => {
                cut.node(i, placement.node[i]);
                i += 1;
            }
        }
    }
    // Of a graph that ends with one.
    if let (false, Some(&device)) = (cut.pending.is_empty(), together.group.first()) {
        let collectives = std::mem::take(&mut cut.pending);
        cut.splits.push(Split { device, nodes: i..i, collectives, copies: Vec::new() });
    }
    let mut splits = cut.splits;
    early::enqueue_early(g, placement, &mut splits);
    splits
}

/// The walk so far.
struct Cut<'a> {
    g: &'a Graph,
    together: Together<'a>,
    splits: Vec<Split>,
    /// For the next split.
    pending: Vec<Collective>,
    places: HashMap<Tensor, Made>,
}

/// Where an owner tensor is: the device that made it, and all that have it.
struct Made {
    made_on: DeviceIdx,
    valid_on: Vec<DeviceIdx>,
}

impl Cut<'_> {
    fn join(&mut self, join: &Join) {
        let whole = self.g.owner(join.whole);
        self.pending.push(Collective::Join(join.kind, join.parts.clone(), whole));
        let valid_on = self.together.group.to_vec();
        self.places.insert(whole, Made { made_on: valid_on[0], valid_on });
    }

    fn node(&mut self, i: usize, device: DeviceIdx) {
        let (node, group) = (&self.g.nodes[i], self.together.group);
        let goes_on = self.splits.last().is_some_and(|s| s.device == device) && self.pending.is_empty();
        if !goes_on || self.is_sum_of_parts(i, device) {
            let collectives = std::mem::take(&mut self.pending);
            self.splits.push(Split { device, nodes: i..i, collectives, copies: Vec::new() });
        }
        let Some(current) = self.splits.last_mut() else { return };
        current.nodes.end = i + 1;
        for owner in node.src.iter().flatten().map(|&t| self.g.owner(t)) {
            // Weights are loaded where they are used, inputs are set there, states never move.
            if self.g.def(owner).kind != Kind::Computed {
                continue;
            }
            let Some(place) = self.places.get_mut(&owner) else { continue };
            if place.valid_on.contains(&device) {
                continue;
            }
            let root = group.iter().position(|&d| d == place.made_on);
            match root.filter(|_| self.together.broadcasts && group.contains(&device)) {
                Some(root) => {
                    current.collectives.push(Collective::Broadcast(owner, root));
                    place.valid_on.extend(group);
                }
                None => {
                    current.copies.push(Copied { tensor: owner, from: place.made_on, after: None });
                    place.valid_on.push(device);
                }
            }
        }
        let made = Made { made_on: device, valid_on: vec![device] };
        self.places.insert(self.g.owner(node.dst), made);
    }

    /// Whether a node needs what another device computes at the same time as this one computed the part before the node: the
    /// part need not wait for it.
    fn is_sum_of_parts(&self, i: usize, device: DeviceIdx) -> bool {
        let is_part = |i: usize| listed(self.g, &self.g.nodes[i]).is_some();
        let is_elsewhere = |t: &Tensor| {
            let place = self.places.get(&self.g.owner(*t));
            place.is_some_and(|place| !place.valid_on.contains(&device))
        };
        i > 0 && is_part(i - 1) && !is_part(i) && self.g.nodes[i].src.iter().flatten().any(is_elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_abi::DType;

    /// A chain of adds x₀+x₀, each on the device its digit names; a letter after it names an older result (a = first
    /// node's) that is added in instead. Splits read "device:nodes(copies)".
    fn splits(chain: &str) -> String {
        let mut g = Graph::new();
        let mut last = g.input("x", DType::F32, &[4]);
        let mut results = Vec::new();
        let mut placement = Placement::default();
        for word in chain.split(' ') {
            let (device, other) = word.split_at(1);
            let other = other.bytes().next().map_or(last, |c| results[(c - b'a') as usize]);
            last = g.add(last, other);
            let letter = char::from(b'a' + results.len() as u8);
            g.name(last, letter);
            results.push(last);
            placement.node.push(device.parse().unwrap());
        }
        let show = |s: &Split| {
            let copies: String =
                s.copies.iter().map(|c| format!("{}<{}", g.def(c.tensor).name, c.from)).collect();
            format!("{}:{}({copies})", s.device, s.nodes.len())
        };
        split(&g, &placement, Together::default()).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_device_is_one_split_without_copies() {
        assert_eq!(splits("0 0 0"), "0:3()");
    }

    #[test]
    fn each_change_of_device_copies_what_is_read() {
        assert_eq!(splits("0 1 0"), "0:1() 1:1(a<0) 0:1(b<1)");
    }

    #[test]
    fn a_tensor_is_copied_to_a_device_once() {
        assert_eq!(splits("0 1 0 1a"), "0:1() 1:1(a<0) 0:1(b<1) 1:1(c<0)");
    }

    #[test]
    fn an_old_result_is_copied_from_where_it_was_made() {
        assert_eq!(splits("0 0 1a"), "0:2() 1:1(b<0a<0)");
    }
}
