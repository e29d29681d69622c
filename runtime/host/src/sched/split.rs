//! Cuts the node list into splits: runs of nodes on one device, and the tensors copied in before each.

use super::place::{DeviceIdx, Placement};
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
    /// Owner tensors copied in first, with the device they come from.
    pub copies: Vec<(Tensor, DeviceIdx)>,
}

/// Splits in execution order. A tensor is copied to a device at most once.
pub fn split(g: &Graph, placement: &Placement) -> Vec<Split> {
    let mut splits: Vec<Split> = Vec::new();
    let mut valid_on: HashMap<Tensor, Vec<DeviceIdx>> = HashMap::new();
    let mut written_by: HashMap<Tensor, DeviceIdx> = HashMap::new();
    for (i, node) in g.nodes.iter().enumerate() {
        let device = placement.node[i];
        if splits.last().is_none_or(|s| s.device != device) {
            splits.push(Split { device, nodes: i..i, copies: Vec::new() });
        }
        let Some(current) = splits.last_mut() else { continue };
        current.nodes.end = i + 1;
        for owner in node.src.iter().flatten().map(|&t| g.owner(t)) {
            // Weights are loaded where they are used, inputs are set there, states never move.
            if g.def(owner).kind != Kind::Computed {
                continue;
            }
            let valid = valid_on.entry(owner).or_default();
            if !valid.contains(&device) {
                valid.push(device);
                if let Some(&from) = written_by.get(&owner) {
                    current.copies.push((owner, from));
                }
            }
        }
        let result = g.owner(node.dst);
        written_by.insert(result, device);
        valid_on.insert(result, vec![device]);
    }
    splits
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
                s.copies.iter().map(|(t, from)| format!("{}<{from}", g.def(*t).name)).collect();
            format!("{}:{}({copies})", s.device, s.nodes.len())
        };
        split(&g, &placement).iter().map(show).collect::<Vec<_>>().join(" ")
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
