//! Distributes a model's layers over the devices before the baseline, where the first has too little memory for all:
//! each layer with its weights and states on one device, so that little is copied between them. Parts of a weight's
//! rows go to the devices in turn. Pure.

use super::place::{DeviceIdx, Facts, owners};
use llmrt_abi::types::Verdict;
use llmrt_graph::rows::{Part, layer_of};
use llmrt_graph::{Graph, Kind, Node, Tensor};
use std::collections::{BTreeSet, HashMap};

/// How several devices share a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SplitMode {
    /// Each has whole layers, if the first one has too little memory for all.
    #[default]
    Layers,
    /// Each has rows of every large matrix, or columns of one whose products add up what was made of rows.
    Rows,
}

impl std::str::FromStr for SplitMode {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<SplitMode, &'static str> {
        match name {
            "layer" => Ok(SplitMode::Layers),
            "row" => Ok(SplitMode::Rows),
            _ => Err("layer or row"),
        }
    }
}

/// The device that each node is for: the first one where it has enough memory for all, else it and those after it that
/// support the same nodes. A device that cannot replace the first one gets only what that refuses.
pub(super) fn share(g: &Graph, facts: &Facts<'_>) -> Vec<DeviceIdx> {
    let mut shares = of_layers(g, facts);
    let mut made: HashMap<Tensor, DeviceIdx> = HashMap::new();
    for (share, node) in shares.iter_mut().zip(&g.nodes) {
        // What a node of a part was taken apart into has no part's name, but reads the part's results alone.
        let with = node.src.iter().flatten().map(|&t| g.owner(t));
        let with = with.filter(|&t| g.def(t).kind == Kind::Computed);
        let mut with = with.map(|t| made.get(&t).copied());
        let first = with.next().flatten();
        let follows = first.filter(|_| with.all(|d| d == first));
        if let Some(d) = listed(g, node).or(follows).filter(|&d| d < facts.verdicts.len()) {
            *share = d;
            made.insert(g.owner(node.dst), d);
        }
    }
    shares
}

/// The device of a node of a part that is cut by a list: parts have the numbers of devices.
pub(super) fn listed(g: &Graph, node: &Node) -> Option<DeviceIdx> {
    part_of(g, node).filter(Part::is_listed).map(|part| part.index)
}

/// The part that a node is of: that of a weight, or, of what is made of parts alone, that of its name.
fn part_of<'a>(g: &'a Graph, node: &Node) -> Option<Part<'a>> {
    let of_weight = owners(g, node).find_map(|t| part(g, t));
    of_weight.or_else(|| Part::of_name(&g.def(node.dst).name))
}

fn of_layers(g: &Graph, facts: &Facts<'_>) -> Vec<DeviceIdx> {
    let equals = equals(facts.verdicts);
    if equals.len() < 2 {
        return vec![0; g.nodes.len()];
    }
    let layers = layers(g);
    let mut shares = vec![0; layers.last().map_or(0, |last| last + 1)];
    let (mut at, mut used, mut held) = (0, 0, BTreeSet::new());
    for (layer, share) in shares.iter_mut().enumerate() {
        let mine: BTreeSet<Tensor> = (0..g.nodes.len())
            .filter(|&i| layers[i] == layer && facts.verdicts[0][i].support != 0)
            .flat_map(|i| owners(g, &g.nodes[i]))
            .filter(|&t| matches!(g.def(t).kind, Kind::Weight | Kind::State) && part(g, t).is_none())
            .filter(|&t| !facts.assigned.contains_key(&g.def(t).name))
            .collect();
        if let Some(home) = mine.iter().filter_map(|&t| home(g, facts, &equals, t)).min() {
            *share = home;
            continue;
        }
        let bytes = |held: &BTreeSet<Tensor>| mine.difference(held).map(|t| g.def(*t).n_bytes()).sum::<u64>();
        let is_full = |at: usize, n: u64| facts.budget[equals[at]].is_some_and(|room| n > room);
        while at + 1 < equals.len() && is_full(at, used + bytes(&held)) {
            (at, used) = (at + 1, 0);
            held.clear();
        }
        used += bytes(&held);
        held.extend(mine);
        *share = equals[at];
    }
    let of_part = |part: Part<'_>| equals[part.index % equals.len()];
    let parts = g.nodes.iter().map(|node| part_of(g, node));
    layers.into_iter().zip(parts).map(|(layer, part)| part.map_or(shares[layer], of_part)).collect()
}

/// Which part of a weight's rows a tensor is.
fn part(g: &Graph, t: Tensor) -> Option<Part<'_>> {
    Part::of_name(&g.def(t).name).filter(|_| g.def(t).kind == Kind::Weight)
}

/// The first device, and those in front of the baseline that take just what it takes.
pub(super) fn equals(verdicts: &[Vec<Verdict>]) -> Vec<DeviceIdx> {
    let takes = |d: DeviceIdx| verdicts[d].iter().map(|v| v.support != 0);
    (0..verdicts.len().saturating_sub(1)).filter(|&d| takes(d).eq(takes(0))).collect()
}

/// Where a tensor of one layer is already. Embeddings may be on several, for the first layer and for the head.
fn home(g: &Graph, facts: &Facts<'_>, among: &[DeviceIdx], t: Tensor) -> Option<DeviceIdx> {
    let name = &g.def(t).name;
    let homes = facts.homes.get(name).filter(|_| layer_of(name).is_some())?;
    homes.iter().copied().find(|d| among.contains(d))
}

/// Each node's layer: that of the weights and states of `blk.N`; a node without them belongs to the layer of the node
/// before it.
fn layers(g: &Graph) -> Vec<usize> {
    let mut layer = 0;
    let mut each = |i: usize| {
        let numbers = owners(g, &g.nodes[i]).filter_map(|t| layer_of(&g.def(t).name));
        layer = numbers.filter(|&n| n < g.nodes.len()).fold(layer, usize::max);
        layer
    };
    (0..g.nodes.len()).map(&mut each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::place::place;
    use llmrt_abi::DType;
    use llmrt_graph::Role;

    const YES: Verdict = Verdict { support: 1, reason: 0, fuse_group: 0, est_us: -1.0, workspace: 0 };

    /// Four layers of a product (256 bytes) and a cache (512 bytes) between embeddings and a head (256 bytes each).
    fn model() -> Graph {
        let mut g = Graph::new();
        let embd = g.weight("token_embd.weight", DType::F32, &[8, 8], Role::Matrix);
        let x = g.input("x", DType::F32, &[8, 2]);
        let slots = g.input("slots", DType::I32, &[2]);
        let mut h = g.mul_mat(embd, x);
        for i in 0..4 {
            let w = g.weight(&format!("blk.{i}.w.weight"), DType::F32, &[8, 8], Role::Matrix);
            let cache = g.state(&format!("blk.{i}.k"), DType::F32, &[8, 16], Role::KCache);
            let y = g.mul_mat(w, h);
            g.set_rows(cache, y, slots);
            h = g.add(h, y);
        }
        let head = g.weight("output.weight", DType::F32, &[8, 8], Role::Matrix);
        g.mul_mat(head, h);
        g.finish().unwrap()
    }

    /// The model on two cards with these bytes and the CPU: the devices of the nodes, and how many have fallen back.
    fn check(budget: [u64; 2], homes: &[(&str, DeviceIdx)], expected: &str) {
        check_assigned(budget, homes, &[], expected);
    }

    fn check_assigned(
        budget: [u64; 2],
        homes: &[(&str, DeviceIdx)],
        assigned: &[(&str, DeviceIdx)],
        expected: &str,
    ) {
        let g = model();
        let verdicts = vec![vec![YES; g.nodes.len()]; 3];
        let homes: HashMap<_, _> = homes.iter().map(|(name, d)| (name.to_string(), vec![*d])).collect();
        let budget = [Some(budget[0]), Some(budget[1]), None];
        let assigned = &assigned.iter().map(|(name, d)| (name.to_string(), *d)).collect();
        let p = place(&g, &Facts { verdicts: &verdicts, homes: &homes, budget: &budget, assigned }).unwrap();
        let nodes: String = p.node.iter().map(|d| d.to_string()).collect();
        assert_eq!(format!("{nodes} {}", p.fallbacks.len()), expected);
    }

    #[test]
    fn the_first_card_takes_all_it_has_room_for() {
        check([1 << 20, 1 << 20], &[], "00000000000000 0");
    }

    #[test]
    fn whole_layers_go_to_the_next_card_and_nothing_has_fallen_back() {
        // Embeddings and two layers have 1792 bytes; half a layer more does not make a layer.
        check([1792, 1 << 20], &[], "00000001111111 0");
        check([2300, 1 << 20], &[], "00000001111111 0");
        check([1023, 1 << 20], &[], "11111111111111 0");
    }

    #[test]
    fn parts_of_rows_go_to_the_cards_in_turn_and_all_else_to_the_first() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8, 2]);
        let w = g.weight("blk.0.w.weight", DType::F32, &[8, 64], Role::Matrix);
        let y = g.mul_mat(w, x);
        g.add(y, y);
        let g = g.finish().unwrap().split_rows(2, false).graph;
        let verdicts = vec![vec![YES; g.nodes.len()]; 3];
        let facts = Facts {
            verdicts: &verdicts,
            homes: &HashMap::new(),
            budget: &[None; 3],
            assigned: &HashMap::new(),
        };
        let p = place(&g, &facts).unwrap();
        // The second part, the first, both put together, and the sum.
        assert_eq!((p.node, p.fallbacks.len()), (vec![1, 0, 0, 0], 0));
    }

    #[test]
    fn assigned_weights_are_elsewhere_and_leave_room_for_other_layers() {
        // Nodes are a product of the embeddings, then product, write and sum of each layer, and the head.
        let of = |i: usize, d: DeviceIdx| (["blk.0.w.weight", "blk.1.w.weight"][i], d);
        check_assigned([1 << 20, 1 << 20], &[], &[of(0, 2), of(1, 2)], "02002000000000 0");
        check_assigned([1 << 20, 1 << 20], &[], &[of(1, 1)], "00001000000000 0");
        // The room of two layers' products is that of one more cache.
        check_assigned([1792, 1 << 20], &[], &[of(0, 2), of(1, 2)], "02002001111111 0");
        check_assigned([2304, 1 << 20], &[], &[of(0, 2), of(1, 2)], "02002000001111 0");
    }

    #[test]
    fn what_has_no_weight_follows_what_it_computes_with() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8, 2]);
        let [gate, up, down] =
            ["gate", "up", "down"].map(|name| g.weight(name, DType::F32, &[8, 8], Role::Matrix));
        let (gate, up) = (g.mul_mat(gate, x), g.mul_mat(up, x));
        let h = g.mul(gate, up);
        let y = g.mul_mat(down, h);
        g.add(y, h);
        let g = g.finish().unwrap();
        let verdicts = vec![vec![YES; g.nodes.len()]; 2];
        let devices = |names: &[&str]| {
            let assigned = &names.iter().map(|name| (name.to_string(), 1)).collect();
            let facts = Facts { verdicts: &verdicts, homes: &HashMap::new(), budget: &[None; 2], assigned };
            place(&g, &facts).unwrap().node
        };
        assert_eq!(devices(&["gate", "up", "down"]), [1, 1, 1, 1, 1]);
        assert_eq!(devices(&["gate", "up"]), [1, 1, 1, 0, 0]);
        assert_eq!(devices(&["gate"]), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn an_assigned_device_that_refuses_is_a_fallback_from_it() {
        let g = model();
        let no = Verdict { support: 0, reason: llmrt_abi::Reason::Op.code(), ..YES };
        let verdicts = vec![vec![YES; g.nodes.len()], vec![no; g.nodes.len()], vec![YES; g.nodes.len()]];
        let assigned = &HashMap::from([("blk.0.w.weight".to_string(), 1)]);
        let facts = Facts { verdicts: &verdicts, homes: &HashMap::new(), budget: &[None; 3], assigned };
        let p = place(&g, &facts).unwrap();
        assert_eq!((p.node[1], p.fallbacks.len(), p.fallbacks.first().map(|f| f.preferred)), (0, 1, Some(1)));
    }

    #[test]
    fn layers_stay_where_they_are() {
        let homes: Vec<_> =
            ["blk.0.k", "blk.1.k", "blk.2.k", "blk.3.k"].into_iter().zip([0, 1, 1, 1]).collect();
        check([1 << 20, 1 << 20], &homes, "00001111111111 0");
    }

    #[test]
    fn a_card_that_takes_other_nodes_takes_no_layers() {
        let g = model();
        let no = Verdict { support: 0, ..YES };
        let mut verdicts = vec![vec![YES; g.nodes.len()]; 3];
        verdicts[1][3] = no;
        let budget = [Some(1792), None, None];
        let facts =
            Facts { verdicts: &verdicts, homes: &HashMap::new(), budget: &budget, assigned: &HashMap::new() };
        assert_eq!(share(&g, &facts), [0; 14]);
    }

    #[test]
    fn what_no_card_has_room_for_falls_back() {
        // The head and the last layer's product do not fit beside the caches.
        check([1792, 1400], &[], "00000001112112 2");
    }
}
