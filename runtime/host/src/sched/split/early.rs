//! Copies that are enqueued after what makes the tensor, not in front of what reads it, where the device goes on with its part
//! of a network in between: both devices then compute at the same time.

use super::{Copied, Split};
use crate::sched::layers::listed;
use crate::sched::place::Placement;
use llmrt_graph::Graph;

/// Moves copies after what makes their tensors, and cuts splits there.
pub(super) fn enqueue_early(g: &Graph, placement: &Placement, splits: &mut Vec<Split>) {
    let is_part = |i: &usize| listed(g, &g.nodes[*i]).is_some();
    let parts: Vec<usize> = (0..g.nodes.len()).filter(is_part).collect();
    // What makes a tensor, and the part that its device has between that and the reader.
    let made_before_a_part = |copied: &Copied, start: usize| {
        let made = (0..start).rev().find(|&i| g.owner(g.nodes[i].dst) == copied.tensor)?;
        let is_between = |i: &usize| (made + 1..start).contains(i) && placement.node[*i] == copied.from;
        Some((made, parts.iter().copied().find(is_between)?))
    };
    if parts.is_empty() {
        return;
    }
    let mut found = Vec::new();
    for split in splits.iter() {
        let start = split.nodes.start;
        found.extend(split.copies.iter().filter_map(|copied| made_before_a_part(copied, start)));
    }
    for (made, part) in found {
        if let Some(at) = splits.iter().position(|s| s.nodes.contains(&made) && s.nodes.contains(&part)) {
            cut(splits, at, part);
        }
    }
    // Now that all cuts are made, the numbers of splits stay.
    let of_node: Vec<_> = splits.iter().map(|split| split.nodes.clone()).collect();
    for split in splits {
        for copied in &mut split.copies {
            let found = made_before_a_part(copied, split.nodes.start);
            copied.after = found.and_then(|(made, _)| of_node.iter().position(|nodes| nodes.contains(&made)));
        }
    }
}

/// Cuts a split in front of a node.
fn cut(splits: &mut Vec<Split>, at: usize, node: usize) {
    let first = &mut splits[at];
    let (device, nodes) = (first.device, node..first.nodes.end);
    first.nodes.end = node;
    splits.insert(at + 1, Split { device, nodes, collectives: Vec::new(), copies: Vec::new() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::place::{Facts, place};
    use crate::sched::split::{Together, split};
    use llmrt_abi::{DType, types::Verdict};
    use llmrt_graph::Role;
    use llmrt_graph::rows::NeuronSplit;
    use std::collections::{BTreeMap, HashMap};

    /// A network of 64 neurons after a product, whose neurons are dealt out so: each split as `device:nodes(copies)`, a copy as
    /// `name<device` with the split after which it is enqueued.
    fn splits(n_neurons: &[u32]) -> String {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4, 2]);
        let [first, up, down] = [("first", 4, 4), ("blk.0.up", 4, 64), ("blk.0.down", 64, 4)]
            .map(|(name, k, rows)| g.weight(name, DType::F32, &[k, rows], Role::Matrix));
        let x = g.mul_mat(first, x);
        g.name(x, "h");
        let h = g.mul_mat(up, x);
        let h = g.relu(h);
        let y = g.mul_mat(down, h);
        g.name(y, "y");
        let y = g.add(y, x);
        g.output(y, "out");
        let mut next = 0;
        let lists = n_neurons.iter().map(|n| {
            next += n;
            (next - n..next).collect()
        });
        let neurons = NeuronSplit { layers: BTreeMap::from([(0, lists.collect())]) };
        let g = g.finish().unwrap().split_neurons(&neurons);
        let yes = Verdict { support: 1, reason: 0, fuse_group: 0, est_us: -1.0, workspace: 0 };
        let verdicts = vec![vec![yes; g.nodes.len()]; n_neurons.len()];
        let (homes, budget) = (HashMap::new(), vec![None; n_neurons.len()]);
        let facts = Facts { verdicts: &verdicts, homes: &homes, budget: &budget, assigned: &HashMap::new() };
        let placement = place(&g, &facts).unwrap();
        assert_eq!(placement.fallbacks, [], "parts are where they are meant to be");
        let show = |s: &Split| {
            let copy = |c: &Copied| {
                let name = g.def(c.tensor).name.split('@').next().unwrap();
                let after = c.after.map_or(String::new(), |after| format!("/{after}"));
                format!("{name}<{}{after}", c.from)
            };
            let copies: Vec<String> = s.copies.iter().map(copy).collect();
            format!("{}:{}({})", s.device, s.nodes.len(), copies.join(" "))
        };
        split(&g, &placement, Together::default()).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_input_of_the_second_half_is_enqueued_in_front_of_the_first() {
        // The product, the first device's half, the CPU's half, and both sums.
        assert_eq!(splits(&[32, 32]), "0:1() 0:3() 1:3(h<0/0) 0:2(y<1)");
    }

    #[test]
    fn each_of_several_devices_gets_it_at_once() {
        assert_eq!(splits(&[16, 16, 32]), "0:1() 1:3(h<0) 0:3() 2:3(h<0/0) 0:3(y<1 y<2)");
    }

    #[test]
    fn the_first_half_does_not_wait_for_the_second() {
        assert_eq!(splits(&[32, 32, 0]), "0:1() 1:3(h<0) 0:3() 0:2(y<1)");
    }

    /// A split is cut for one copy after another tensor that a second copy needs.
    #[test]
    fn a_cut_moves_what_is_made_after_it() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4, 2]);
        let w = |g: &mut Graph, name: &str| g.weight(name, DType::F32, &[4, 4], Role::Matrix);
        let [first, part, second, again] =
            ["first", "a@0/2:#", "second", "b@0/2:#"].map(|name| w(&mut g, name));
        let a = g.mul_mat(first, x);
        let p = g.mul_mat(part, a);
        let b = g.mul_mat(second, p);
        let q = g.mul_mat(again, b);
        let with_b = g.relu(b);
        let with_a = g.relu(a);
        let end = g.add(with_a, with_b);
        let end = g.add(end, q);
        g.output(end, "end");
        let g = g.finish().unwrap();
        let placement = Placement { node: vec![0, 0, 0, 0, 1, 1, 1, 0], ..Placement::default() };
        let found = split(&g, &placement, Together::default());
        let nodes: Vec<_> = found.iter().map(|split| split.nodes.clone()).collect();
        assert_eq!(nodes, [0..1, 1..3, 3..4, 4..7, 7..8]);
        let after: Vec<_> = found[3].copies.iter().map(|copied| (copied.tensor, copied.after)).collect();
        assert_eq!(after, [(b, Some(1)), (a, Some(0))]);
    }

    #[test]
    fn nothing_is_cut_where_one_device_has_all() {
        assert_eq!(splits(&[64, 0]), "0:5()");
        assert_eq!(splits(&[0, 64]), "0:1() 1:3(h<0) 0:1(y<1)");
    }
}
