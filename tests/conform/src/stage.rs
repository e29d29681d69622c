//! Where a node is tested: its tensors in one buffer, with sentinels before and after each.

use crate::outcome::{Trouble, Verdict, wrong};
use crate::problem::Problem;
use crate::raw;
use llmrt_abi::types as c;
use llmrt_graph::reference::Memory;
use llmrt_graph::{Tensor, TensorDef};
use llmrt_host::sched::bind::{Place, describe};
use llmrt_host::{Buffer, Device, RawGraph};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A node bound to memory of a device.
pub struct Stage {
    /// The memory.
    pub buffer: Buffer,
    /// The node, bound to it.
    pub graph: RawGraph,
    /// Row of each tensor in `graph`.
    pub rows: std::collections::HashMap<Tensor, u32>,
    /// Where the bytes of each tensor that owns some are.
    pub places: BTreeMap<Tensor, Range<usize>>,
    /// Bytes that the device may use freely: what it requires after tensors.
    slack: Vec<Range<usize>>,
    /// The buffer's bytes before the run.
    pub image: Vec<u8>,
}

/// Content of bytes that must not be written.
const SENTINEL: u8 = 0xa5;
/// What stands where the result will be: NaN in every float format.
const POISON: u8 = 0xff;

impl Stage {
    /// Allocates and lays out; nothing is uploaded yet.
    pub fn new(device: &Arc<Device>, problem: &Problem) -> Verdict<Stage> {
        let g = &problem.graph;
        let align = device.alignment().max(64) as usize;
        let (mut places, mut slack, mut end) = (BTreeMap::new(), Vec::new(), align);
        for t in problem.owners() {
            let def = g.def(t);
            let n = def.n_bytes() as usize;
            let start = end.next_multiple_of(align);
            let room = device.alloc_size(0, &describe(def, None))? as usize;
            places.insert(t, start..start + n);
            slack.push(start + n..start + n.max(room));
            end = start + n.max(room) + align;
        }
        let mut image = vec![SENTINEL; end.next_multiple_of(align)];
        for (t, place) in &places {
            match problem.given.bytes(*t) {
                Some(bytes) if bytes.len() == place.len() => image[place.clone()].copy_from_slice(bytes),
                Some(bytes) => {
                    return wrong(format!("an operand has {} bytes for {}", bytes.len(), place.len()));
                }
                None => image[place.clone()].fill(POISON),
            }
        }
        let buffer = match device.alloc(0, image.len() as u64, c::USAGE_COMPUTE) {
            Err(e) if e.is_oom() => {
                return Err(Trouble::Lacking(format!(
                    "no memory for {} bytes of operands: {e}",
                    image.len()
                )));
            }
            other => other?,
        };
        let at = |t: Tensor| {
            let offset = places.get(&t)?.start as u64;
            Some(Place { buffer: buffer.clone(), offset, layout_id: 0 })
        };
        let (graph, rows) = raw::build(g, &raw::nodes(g), &at)?;
        Ok(Stage { buffer, graph, rows, places, slack, image })
    }

    /// Writes everything.
    pub fn upload(&self) -> Verdict {
        Ok(self.buffer.write(0, &self.image)?)
    }

    /// Reads everything.
    pub fn download(&self) -> Verdict<Vec<u8>> {
        let mut bytes = vec![0; self.image.len()];
        self.buffer.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Puts other operands into the image.
    pub fn set_operands(&mut self, given: &Memory) {
        for (t, place) in &self.places {
            if let Some(bytes) = given.bytes(*t).filter(|bytes| bytes.len() == place.len()) {
                self.image[place.clone()].copy_from_slice(bytes);
            }
        }
    }

    /// The bytes of the tensor that holds the result.
    pub fn target<'b>(&self, problem: &Problem, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.places[&problem.target()].clone()]
    }

    /// Fails if a byte changed that is not the result's: sentinels, operands, and gaps within the result's tensor.
    pub fn check_surroundings(&self, problem: &Problem, after: &[u8]) -> Verdict {
        let g = &problem.graph;
        let mut may_change = vec![false; self.image.len()];
        self.slack.iter().for_each(|range| may_change[range.clone()].fill(true));
        let start = self.places[&problem.target()].start;
        for_each_byte(g.def(problem.node().dst), &mut |range| {
            may_change[start + range.start..start + range.end].fill(true);
        });
        let changed = (0..self.image.len()).find(|&i| !may_change[i] && self.image[i] != after[i]);
        let Some(i) = changed else { return Ok(()) };
        let what = match self.places.iter().find(|(_, place)| place.contains(&i)) {
            Some((t, place)) if *t == problem.target() => {
                format!("byte {} of the result's tensor, between its elements,", i - place.start)
            }
            Some((t, place)) => {
                let source = problem.node().src.iter().position(|s| s.is_some_and(|s| g.owner(s) == *t));
                format!("byte {} of source {}", i - place.start, source.unwrap_or(0))
            }
            None => self.neighbour(problem, i),
        };
        wrong(format!("wrote out of bounds: {what} was {:#04x} and is {:#04x}", self.image[i], after[i]))
    }

    /// A byte of no tensor, by the tensor that it is nearest to.
    fn neighbour(&self, problem: &Problem, i: usize) -> String {
        let is_of = |t: Tensor| move |s: &Option<Tensor>| s.is_some_and(|s| problem.graph.owner(s) == t);
        let name = |t: Tensor| match problem.node().src.iter().position(is_of(t)) {
            _ if t == problem.target() => "the result".to_string(),
            Some(source) => format!("source {source}"),
            None => "an operand".to_string(),
        };
        let after = self.places.iter().filter(|(_, place)| place.end <= i);
        let before = self.places.iter().filter(|(_, place)| place.start > i);
        let after = after.map(|(&t, place)| (i - place.end + 1, "past the end of", t));
        let before = before.map(|(&t, place)| (place.start - i, "before the start of", t));
        match after.chain(before).min_by_key(|&(distance, ..)| distance) {
            Some((distance, side, t)) => format!("byte {distance} {side} {}", name(t)),
            None => format!("byte {i} of the buffer"),
        }
    }
}

/// The byte ranges of a tensor's elements, within the tensor that owns them.
fn for_each_byte(def: &TensorDef, visit: &mut dyn FnMut(Range<usize>)) {
    if def.ne.contains(&0) {
        return;
    }
    let start = def.view.map_or(0, |(_, offset)| offset);
    let (block, n_blocks) = (def.dtype.block_bytes() as u64, def.ne[0] / def.dtype.block_elems() as u64);
    for i3 in 0..def.ne[3] {
        for i2 in 0..def.ne[2] {
            for i1 in 0..def.ne[1] {
                let row = start + i1 * def.nb[1] + i2 * def.nb[2] + i3 * def.nb[3];
                if def.has_dense_rows() {
                    visit(row as usize..(row + n_blocks * block) as usize);
                } else {
                    for b in 0..n_blocks {
                        let at = row + b * def.nb[0];
                        visit(at as usize..(at + block) as usize);
                    }
                }
            }
        }
    }
}
