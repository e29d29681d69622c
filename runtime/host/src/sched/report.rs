//! What the scheduler did: splits, nodes per device, why nodes fell back, and bytes copied per step.

use super::place::{DeviceIdx, Fallback};
use super::split::{Collective, Split};
use llmrt_abi::Reason;
use llmrt_graph::Graph;
use llmrt_graph::rows::JoinKind;
use std::collections::BTreeMap;
use std::fmt;

/// What happened to one graph.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Names by device row; the last is the CPU baseline.
    pub devices: Vec<String>,
    /// Nodes per device row.
    pub nodes: Vec<usize>,
    /// Device row and node count of each split, in order.
    pub splits: Vec<(DeviceIdx, usize)>,
    /// Nodes that do not run on the first device, by (op, device, reason), with a count and the first one's tensor.
    pub fallbacks: Vec<FallbackGroup>,
    /// Bytes copied between devices in one run.
    pub copied_bytes: u64,
    /// Copies between devices in one run.
    pub n_copies: usize,
    /// What devices put together themselves in one run, and the bytes of the results: sums, rows, copies from one to all.
    pub collectives: [(usize, u64); 3],
    /// Why parts come together by copies, where they do.
    pub by_copies: Option<String>,
    /// Arena bytes per device row.
    pub compute_bytes: Vec<u64>,
    /// Bytes of pinned host memory per device row, on the way of inputs and results.
    pub staging_bytes: Vec<u64>,
    /// Neurons of networks in parts, and bytes of their weights, per device row; none where networks are whole.
    pub neurons: Vec<(u64, u64)>,
    /// Composite nodes taken apart.
    pub n_legalised: usize,
    /// Errors of devices that gave no verdict.
    pub failed: Vec<String>,
}

/// Fallbacks that differ by nothing but the layer.
#[derive(Clone, PartialEq, Debug)]
pub struct FallbackGroup {
    /// Name of the op.
    pub op: &'static str,
    /// Row of the device that runs it.
    pub device: DeviceIdx,
    /// Why the first device does not.
    pub reason: Reason,
    /// How many nodes.
    pub count: usize,
    /// The first node's tensor.
    pub example: String,
}

impl Report {
    /// Adds up the nodes of `splits` and `fallbacks` of `g`.
    pub fn new(g: &Graph, devices: Vec<String>, splits: &[Split], fallbacks: &[Fallback]) -> Report {
        let mut nodes = vec![0; devices.len()];
        let mut copied_bytes = 0;
        for s in splits {
            nodes[s.device] += s.nodes.len();
            copied_bytes += s.copies.iter().map(|copied| g.def(copied.tensor).n_bytes()).sum::<u64>();
        }
        let mut collectives = [(0, 0); 3];
        for collective in splits.iter().flat_map(|s| &s.collectives) {
            let (row, t) = match collective {
                Collective::Join(JoinKind::Sum, _, t) => (0, t),
                Collective::Join(JoinKind::Rows, _, t) => (1, t),
                Collective::Broadcast(t, _) => (2, t),
            };
            collectives[row].0 += 1;
            collectives[row].1 += g.def(*t).n_bytes();
        }
        let mut groups: BTreeMap<(&str, DeviceIdx, u8), FallbackGroup> = BTreeMap::new();
        for f in fallbacks {
            groups
                .entry((f.op.name(), f.device, f.reason.code()))
                .or_insert_with(|| FallbackGroup {
                    op: f.op.name(),
                    device: f.device,
                    reason: f.reason,
                    count: 0,
                    example: f.tensor.clone(),
                })
                .count += 1;
        }
        Report {
            devices,
            nodes,
            splits: splits.iter().map(|s| (s.device, s.nodes.len())).collect(),
            fallbacks: groups.into_values().collect(),
            copied_bytes,
            n_copies: splits.iter().map(|s| s.copies.len()).sum(),
            collectives,
            ..Report::default()
        }
    }

    /// Nodes that do not run on the first device.
    pub fn n_fallbacks(&self) -> usize {
        self.fallbacks.iter().map(|f| f.count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_nodes = self.nodes.iter().sum();
        writeln!(f, "{}, {}", count(self.splits.len(), "split"), count(n_nodes, "node"))?;
        for (d, name) in self.devices.iter().enumerate() {
            let compute = self.compute_bytes.get(d).copied().unwrap_or(0);
            let n_splits = self.splits.iter().filter(|(device, _)| *device == d).count();
            let (nodes, splits) = (count(self.nodes[d], "node"), count(n_splits, "split"));
            writeln!(f, "  {name:<12} {nodes:>12} in {splits:>11}, {compute} bytes of compute memory")?;
        }
        let copies = match self.n_copies {
            1 => "1 copy".to_string(),
            n => format!("{n} copies"),
        };
        writeln!(f, "  copied per step: {} bytes in {copies}", self.copied_bytes)?;
        let [(sums, _), (rows, _), (broadcasts, _)] = self.collectives;
        if sums + rows + broadcasts > 0 {
            let bytes: u64 = self.collectives.iter().map(|(_, bytes)| bytes).sum();
            writeln!(
                f,
                "  put together by the devices per step: {bytes} bytes in {sums} all-reduce, {rows} all-gather, {broadcasts} \
                 broadcast"
            )?;
        }
        if self.neurons.iter().any(|(n, _)| *n > 0) {
            let rows = self.devices.iter().zip(&self.neurons);
            let each = rows.map(|(name, (n, bytes))| format!("{n} ({bytes} bytes) on {name}"));
            writeln!(f, "  neurons: {}", each.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(reason) = &self.by_copies {
            writeln!(f, "  parts of rows are put together by copies: {reason}")?;
        }
        if self.n_legalised > 0 {
            writeln!(f, "  {} taken apart", count(self.n_legalised, "composite node"))?;
        }
        for failure in &self.failed {
            writeln!(f, "  out of use: {failure}")?;
        }
        for g in &self.fallbacks {
            writeln!(
                f,
                "  fallback: {} × {} on {} instead of {}: {} ({}; first: `{}`)",
                g.count,
                g.op,
                self.devices[g.device],
                self.devices[0],
                g.reason,
                in_words(g.reason),
                g.example
            )?;
        }
        Ok(())
    }
}

/// Why a device does not run a node, for people.
fn in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::None => "it did not refuse",
        Reason::Op => "it does not run this op",
        Reason::Type => "not for these types",
        Reason::Shape => "not for these shapes",
        Reason::Stride => "not for these strides",
        // Of the device: a sealed operand. Of the placement: a state, or what it is to follow, is on another device.
        Reason::Layout => "an operand is on another device, or in a layout that it does not read there",
        Reason::Param => "not for these parameters",
        Reason::Version => "not for this version of the op",
        Reason::Memory => "its memory is too small",
    }
}

/// `1 split`, `2 splits`.
fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}
