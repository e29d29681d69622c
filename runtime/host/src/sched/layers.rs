//! Shares a model's layers out over the devices in front of the baseline, where the first of them has no room for all:
//! each layer with its weights and states on one device, so that little is copied between them. Pure.

use super::place::{DeviceIdx, Facts, owners};
use llmrt_graph::{Graph, Kind, Tensor};
use std::collections::BTreeSet;

/// The device that each node is for; the first one for all where it has room. A device that refuses a node of its layer
/// is no reason to move the layer.
pub(super) fn share(g: &Graph, facts: &Facts<'_>) -> Vec<DeviceIdx> {
    let n_devices = facts.verdicts.len() - 1;
    if n_devices < 2 {
        return vec![0; g.nodes.len()];
    }
    let layers = layers(g);
    let mut shares = vec![0; layers.last().map_or(0, |last| last + 1)];
    let (mut device, mut used, mut held) = (0, 0, BTreeSet::new());
    for (layer, share) in shares.iter_mut().enumerate() {
        let mine: BTreeSet<Tensor> = (0..g.nodes.len())
            .filter(|&i| layers[i] == layer)
            .flat_map(|i| owners(g, &g.nodes[i]))
            .filter(|&t| matches!(g.def(t).kind, Kind::Weight | Kind::State))
            .collect();
        let home = |t: &Tensor| facts.homes.get(&g.def(*t).name)?.iter().copied().find(|&d| d < n_devices);
        if let Some(home) = mine.iter().find_map(home) {
            *share = home;
            continue;
        }
        let bytes = |held: &BTreeSet<Tensor>| mine.difference(held).map(|t| g.def(*t).n_bytes()).sum::<u64>();
        while device + 1 < n_devices && facts.budget[device].is_some_and(|n| used + bytes(&held) > n) {
            (device, used) = (device + 1, 0);
            held.clear();
        }
        used += bytes(&held);
        held.extend(mine);
        *share = device;
    }
    layers.into_iter().map(|layer| shares[layer]).collect()
}

/// Each node's layer: that of the weights and states of `blk.N`; what has none belongs to what came before it.
fn layers(g: &Graph) -> Vec<usize> {
    let number = |t: Tensor| -> Option<usize> {
        let name = g.def(t).name.strip_prefix("blk.")?;
        name.split('.').next()?.parse().ok().filter(|&n| n < g.nodes.len())
    };
    let mut layer = 0;
    let mut each = |i: usize| {
        layer = owners(g, &g.nodes[i]).filter_map(number).fold(layer, usize::max);
        layer
    };
    (0..g.nodes.len()).map(&mut each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::place::place;
    use llmrt_abi::{DType, Reason, types::Verdict};
    use llmrt_graph::Role;
    use std::collections::HashMap;

    /// Four layers of a product (256 bytes) and a cache (512 bytes) between embeddings and a head (256 bytes each), on two
    /// cards with these bytes and the CPU: the devices of the nodes, and how many count as fallen back.
    fn check(budget: [u64; 2], homes: &[(&str, DeviceIdx)], expected: &str) {
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
        let g = g.finish().unwrap();
        let yes =
            Verdict { support: 1, reason: Reason::None.code(), fuse_group: 0, est_us: -1.0, workspace: 0 };
        let verdicts = vec![vec![yes; g.nodes.len()]; 3];
        let homes: HashMap<_, _> = homes.iter().map(|(name, d)| (name.to_string(), vec![*d])).collect();
        let budget = [Some(budget[0]), Some(budget[1]), None];
        let p = place(&g, &Facts { verdicts: &verdicts, homes: &homes, budget: &budget }).unwrap();
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
    fn layers_stay_where_they_are() {
        let homes: Vec<_> =
            ["blk.0.k", "blk.1.k", "blk.2.k", "blk.3.k"].into_iter().zip([0, 1, 1, 1]).collect();
        check([1 << 20, 1 << 20], &homes, "00001111111111 0");
    }

    #[test]
    fn what_no_card_has_room_for_falls_back() {
        // The head and the last layer's product do not fit beside the caches.
        check([1792, 1400], &[], "00000001112112 2");
    }
}
