//! The place of every intermediate tensor: one arena per device, reused by liveness.

use super::place::{DeviceIdx, Placement};
use super::split::{Copied, Split};
use llmrt_abi::op::Op;
use llmrt_graph::{Graph, Kind, Node, Tensor, plan};
use std::collections::BTreeMap;
use std::ops::Range;

/// Offsets of the tensors on one device, and the bytes of its arena.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Arena {
    /// Owner tensors to byte offsets.
    pub offsets: BTreeMap<Tensor, u64>,
    /// Where the graph's inputs are, one after the other, so that one copy brings all of them.
    pub inputs: Range<u64>,
    /// Bytes to allocate.
    pub total: u64,
}

/// When a tensor's bytes on one device are needed: node rows, both ends included.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Life {
    first: usize,
    last: usize,
}

/// Plans one arena per device. `size(device, tensor)` gives bytes, `align[device]` the alignment.
pub fn plan_arenas(
    g: &Graph,
    placement: &Placement,
    splits: &[Split],
    group: &[DeviceIdx],
    align: &[u64],
    mut size: impl FnMut(DeviceIdx, Tensor) -> u64,
) -> Vec<Arena> {
    let lives = lives(g, placement, splits, group);
    (0..align.len())
        .map(|device| {
            let mine = lives.iter().filter(|((d, _), _)| *d == device);
            let (inputs, others): (Vec<_>, Vec<_>) =
                mine.map(|((_, t), life)| (*t, *life)).partition(|(t, _)| g.def(*t).kind == Kind::Input);
            let mut arena = Arena::default();
            let mut n_input = 0;
            for (t, _) in &inputs {
                arena.offsets.insert(*t, n_input);
                n_input += size(device, *t).next_multiple_of(align[device].max(1));
            }
            let of_inputs = inputs.iter().map(|(_, life)| life.last).max().map(|last_use| plan::Item {
                size: n_input,
                first_use: 0,
                last_use,
            });
            let of_others = others.iter().map(|(t, life)| plan::Item {
                size: size(device, *t),
                first_use: life.first,
                last_use: life.last,
            });
            let items: Vec<_> = of_inputs.into_iter().chain(of_others).collect();
            let layout = plan::plan(&items, align[device]);
            let (first, rest) = layout.offsets.split_at(usize::from(!inputs.is_empty()));
            let start = first.first().copied().unwrap_or(0);
            arena.offsets.values_mut().for_each(|offset| *offset += start);
            arena.offsets.extend(others.iter().map(|(t, _)| *t).zip(rest.iter().copied()));
            Arena { inputs: start..start + n_input, total: layout.total, ..arena }
        })
        .collect()
}

/// Lifetimes of every (device, owner tensor) that needs bytes in an arena: inputs, results, and copies.
fn lives(
    g: &Graph,
    placement: &Placement,
    splits: &[Split],
    group: &[DeviceIdx],
) -> BTreeMap<(DeviceIdx, Tensor), Life> {
    let mut lives: BTreeMap<(DeviceIdx, Tensor), Life> = BTreeMap::new();
    let mut touch = |device: DeviceIdx, t: Tensor, at: usize| {
        // Inputs are set before the first node; outputs are read after the last.
        let first = if g.def(t).kind == Kind::Input { 0 } else { at };
        let life = lives.entry((device, t)).or_insert(Life { first, last: at });
        life.last = life.last.max(at);
        if g.def(t).output {
            life.last = g.nodes.len();
        }
    };
    for split in splits {
        for collective in &split.collectives {
            for (rank, &device) in group.iter().enumerate() {
                collective.on(rank).for_each(|t| touch(device, g.owner(t), split.nodes.start));
            }
        }
        for &Copied { tensor, from, after } in &split.copies {
            if let Some(after) = after {
                touch(split.device, tensor, splits[after].nodes.end.saturating_sub(1));
            }
            touch(from, tensor, split.nodes.start);
            touch(split.device, tensor, split.nodes.start);
        }
        for i in split.nodes.clone() {
            let (node, end) = (&g.nodes[i], alike_from(g, i, split.nodes.end));
            let read = node.src.iter().flatten().map(|t| (t, end));
            for (t, last) in read.chain([(&node.dst, i)]).map(|(t, last)| (g.owner(*t), last)) {
                if matches!(g.def(t).kind, Kind::Computed | Kind::Input) {
                    touch(placement.node[i], t, i);
                    touch(placement.node[i], t, last);
                }
            }
        }
    }
    // A view of an output is an output of its owner.
    for def in g.tensors.iter().filter(|d| d.output) {
        if let Some((owner, _)) = def.view {
            for ((_, t), life) in lives.iter_mut() {
                if *t == owner {
                    life.last = g.nodes.len();
                }
            }
        }
    }
    lives
}

/// Products or rotations that a device may run as one.
const TOGETHER: usize = 3;

/// The last node that may run as one with node `i`: of up to three products or rotations that follow each other without reading
/// each other's results, and of a GLU that reads those. None of them writes over what another reads.
fn alike_from(g: &Graph, i: usize, end: usize) -> usize {
    if !matches!(g.nodes[i].op, Op::MulMat | Op::MulMatId | Op::Rope) {
        return i;
    }
    let reads = |node: &Node, results: &[Node]| {
        let is_result = |t: &Tensor| results.iter().any(|result| g.owner(result.dst) == g.owner(*t));
        node.src.iter().flatten().any(is_result)
    };
    let is_alike = |j: &usize| g.nodes[*j].op == g.nodes[i].op && !reads(&g.nodes[*j], &g.nodes[i..*j]);
    let next = i + 1 + (i + 1..end.min(i + TOGETHER)).take_while(is_alike).count();
    let is_unit = next < end && g.nodes[next].op == Op::Glu && reads(&g.nodes[next], &g.nodes[i..next]);
    if is_unit { next } else { next - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::split::{Together, split};
    use llmrt_abi::DType;
    use llmrt_graph::{Activation, Role};

    /// A chain of unary ops on 1 KiB rows, each on the device its digit names.
    fn arenas(devices: &str) -> Vec<u64> {
        let mut g = Graph::new();
        let mut t = g.input("x", DType::F32, &[256]);
        let mut placement = Placement::default();
        for d in devices.chars() {
            t = g.tanh(t);
            placement.node.push(d as usize - '0' as usize);
        }
        g.output(t, "y");
        let n = placement.node.iter().max().map_or(1, |d| d + 1);
        let splits = split(&g, &placement, Together::default());
        plan_arenas(&g, &placement, &splits, &[], &vec![64; n], |_, t| g.def(t).n_bytes())
            .iter()
            .map(|a| a.total)
            .collect()
    }

    #[test]
    fn a_chain_of_any_length_needs_two_tensors() {
        assert_eq!(arenas("00"), [2048]);
        assert_eq!(arenas("00000000"), [2048]);
    }

    #[test]
    fn products_that_may_run_as_one_write_over_no_source_of_theirs() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[256]);
        let [a, b] = [g.exp(x), g.sqr(x)];
        let [c, d] = [("v", a), ("w", b)].map(|(name, x)| {
            let w = g.weight(name, DType::F32, &[256, 256], Role::Matrix);
            g.mul_mat(w, x)
        });
        let y = g.glu(Activation::Silu, c, Some(d));
        g.output(y, "y");
        let placement = Placement { node: vec![0; g.nodes.len()], ..Placement::default() };
        let splits = split(&g, &placement, Together::default());
        let arenas = plan_arenas(&g, &placement, &splits, &[], &[64], |_, t| g.def(t).n_bytes());
        let places: std::collections::BTreeSet<u64> = [a, b, c, d, y].map(|t| arenas[0].offsets[&t]).into();
        assert_eq!(places.len(), 5, "{arenas:?}");
    }

    #[test]
    fn inputs_follow_each_other_and_stay_until_the_last_is_read() {
        let mut g = Graph::new();
        let [a, b] = ["a", "b"].map(|name| g.input(name, DType::F32, &[3]));
        let tanh = g.tanh(a);
        let exp = g.exp(tanh);
        let y = g.add(exp, b);
        g.output(y, "y");
        let placement = Placement { node: vec![0; g.nodes.len()], ..Placement::default() };
        let splits = split(&g, &placement, Together::default());
        let arenas = plan_arenas(&g, &placement, &splits, &[], &[64], |_, t| g.def(t).n_bytes());
        let at = |t| arenas[0].offsets[&t] - arenas[0].inputs.start;
        assert_eq!((at(a), at(b), arenas[0].inputs.end - arenas[0].inputs.start), (0, 64, 128));
        let others = [tanh, exp].map(|t| arenas[0].offsets[&t]);
        assert!(others.iter().all(|offset| !arenas[0].inputs.contains(offset)), "{arenas:?}");
    }

    #[test]
    fn a_copied_tensor_has_bytes_on_both_devices() {
        // Device 0 holds x and its tanh; device 1 the copy and the result.
        assert_eq!(arenas("01"), [2048, 2048]);
    }
}
