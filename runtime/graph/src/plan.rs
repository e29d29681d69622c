//! Buffer planning: when each computed tensor is in use, and its offset in one buffer. Pure.

use crate::graph::Graph;
use crate::tensor::{Kind, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;

/// A computed tensor and the nodes, by number, from the one that writes it to the last that reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// Owner of its bytes; never a view.
    pub tensor: Tensor,
    /// The node that first writes it.
    pub first_use: usize,
    /// The last node that reads or writes it, also through views.
    pub last_use: usize,
}

/// Lifetimes of the tensors that `nodes` compute, by first use. Outputs, and what nodes after the range read, live to
/// the end of the range.
pub fn lifetimes(graph: &Graph, nodes: Range<usize>) -> Vec<Lifetime> {
    let end = nodes.end.min(graph.nodes.len());
    let mut lives = BTreeMap::new();
    for (i, node) in graph.nodes.iter().enumerate().take(end).skip(nodes.start) {
        let dst = graph.owner(node.dst);
        if graph.def(dst).kind == Kind::Computed {
            lives.entry(dst).or_insert((i, i));
        }
    }
    for (i, node) in graph.nodes.iter().enumerate().skip(nodes.start) {
        for t in node.src.iter().flatten().chain([&node.dst]) {
            if let Some((_, last)) = lives.get_mut(&graph.owner(*t)) {
                *last = i.min(end - 1);
            }
        }
    }
    for (i, def) in graph.tensors.iter().enumerate().filter(|(_, def)| def.output) {
        let owner = def.view.map_or(Tensor(i as u32), |(base, _)| base);
        if let Some((_, last)) = lives.get_mut(&owner) {
            *last = end - 1;
        }
    }
    let mut lives: Vec<_> = lives
        .into_iter()
        .map(|(tensor, (first_use, last_use))| Lifetime { tensor, first_use, last_use })
        .collect();
    lives.sort_by_key(|l| l.first_use);
    lives
}

/// Something that needs `size` bytes from step `first_use` to step `last_use`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// Bytes.
    pub size: u64,
    /// First step.
    pub first_use: usize,
    /// Last step.
    pub last_use: usize,
}

/// Offsets of items in one buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Byte offset of each item, in the items' order.
    pub offsets: Vec<u64>,
    /// Bytes of the buffer. `u64::MAX` when the sizes overflow.
    pub total: u64,
}

/// Places items so that those alive at the same step do not overlap; offsets are multiples of `align`.
///
/// Largest first, each in the smallest gap it fits between the placed items that live at the same time. Quadratic in
/// the number of items: 2,000 take a few milliseconds.
pub fn plan(items: &[Item], align: u64) -> Layout {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(items[i].size), items[i].first_use));

    let mut layout = Layout { offsets: vec![0; items.len()], total: 0 };
    let mut placed: Vec<usize> = vec![]; // by offset
    for i in order {
        let neighbours = placed.iter().copied().filter(|&p| live_together(&items[i], &items[p]));
        let ranges = neighbours.map(|p| (layout.offsets[p], layout.offsets[p].saturating_add(items[p].size)));
        let offset = best_gap(ranges, items[i].size, align.max(1));
        layout.offsets[i] = offset;
        layout.total = layout.total.max(offset.saturating_add(items[i].size));
        let at = placed.partition_point(|&p| layout.offsets[p] <= offset);
        placed.insert(at, i);
    }
    layout
}

fn live_together(a: &Item, b: &Item) -> bool {
    a.first_use <= b.last_use && b.first_use <= a.last_use
}

/// The start of the smallest gap of at least `size` between `taken` (by start); if there is none, the end of all.
fn best_gap(taken: impl Iterator<Item = (u64, u64)>, size: u64, align: u64) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut free_from = 0u64;
    for (start, end) in taken {
        let gap = start.saturating_sub(free_from);
        if start >= free_from && gap >= size && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, free_from));
        }
        free_from = free_from.max(end.checked_next_multiple_of(align).unwrap_or(u64::MAX));
    }
    best.map_or(free_from, |(_, offset)| offset)
}

/// The most bytes alive at one step: no layout is smaller.
pub fn peak(items: &[Item]) -> u64 {
    let mut changes = BTreeMap::<usize, i128>::new();
    for item in items {
        *changes.entry(item.first_use).or_default() += item.size as i128;
        *changes.entry(item.last_use.saturating_add(1)).or_default() -= item.size as i128;
    }
    let alive = changes.values().scan(0, |sum, change| {
        *sum += change;
        Some(*sum)
    });
    alive.max().and_then(|peak| u64::try_from(peak).ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
