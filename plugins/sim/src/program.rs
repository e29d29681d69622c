//! A graph as a queue runs it: on the device's own addresses, and with operands of matrix products brought into scratch
//! memory just before.
//!
//! Each piece of scratch memory goes back to the host's pool as soon as its product is enqueued, and becomes poison as
//! soon as its product is done. So whatever gets the same bytes too early, or finds them too late, computes NaN.

use crate::device::Card;
use crate::memory::{Memory, SimBuffer};
use crate::profile::{Fault, Profile};
use llmrt_cpu::stream::CpuStream;
use llmrt_plugin::abi::types::{ROLE_OTHER, TENSOR_WEIGHT};
use llmrt_plugin::{Error, GraphCopy, GraphView, NodeView, Op, Piece, Result, Scratch, Stream, TensorView};
use std::ops::Range;
use std::sync::Arc;

/// A graph on the device's own addresses, and what keeps them valid.
pub struct Program {
    graph: GraphCopy,
    /// What a queue does, in order.
    pub steps: Vec<Step>,
    _memory: Vec<Arc<Memory>>,
}

/// One command of a queue.
pub enum Step {
    /// Brings an operand into scratch memory.
    Stage(Staged),
    /// Computes these nodes; the scratch memory they use is used up then.
    Compute {
        /// Which.
        nodes: Range<usize>,
        /// Their operands in scratch memory.
        staged: Vec<Staged>,
        /// Bytes of the matrices that they multiply.
        weights: u64,
    },
}

/// An operand in scratch memory.
#[derive(Clone)]
pub struct Staged {
    source: Arc<Memory>,
    /// Where it is, and how long.
    start: u64,
    n: u64,
    scratch: Arc<Memory>,
    at: u64,
}

impl Step {
    /// Bytes to move.
    pub fn n_bytes(&self) -> u64 {
        match self {
            Step::Stage(operand) => operand.n,
            Step::Compute { .. } => 0,
        }
    }
}

impl Staged {
    /// Brings the bytes over.
    pub fn run(&self) -> Result<()> {
        self.scratch.copy(self.at, &self.source, self.start, self.n)
    }
}

impl Program {
    /// Prepares a graph. `scratch` is the stream's pool; without one operands stay where they are.
    pub fn new(graph: &GraphView<'_>, card: &Card, scratch: &mut Option<Scratch>) -> Result<Program> {
        let mut kept: Vec<Arc<Memory>> = Vec::new();
        let copy = GraphCopy::new(graph, |t| {
            let memory = memory_of(t)?;
            if !kept.iter().any(|m| Arc::ptr_eq(m, memory)) {
                kept.push(memory.clone());
            }
            Ok(memory.kernels().clone())
        })?;
        let mut program = Program { graph: copy, steps: Vec::new(), _memory: kept };
        let mut done = 0;
        if let Some(scratch) = scratch {
            for (i, node) in graph.nodes().enumerate() {
                let sources = staged_sources(&node);
                if sources.is_empty() {
                    continue;
                }
                program.compute(graph, done..i, Vec::new());
                program.stage(graph, i, &sources, card, scratch).map_err(|e| e.at_node(i))?;
                done = i + 1;
            }
        }
        program.compute(graph, done..graph.n_nodes(), Vec::new());
        Ok(program)
    }

    fn compute(&mut self, graph: &GraphView<'_>, nodes: Range<usize>, staged: Vec<Staged>) {
        if !nodes.is_empty() {
            let weights = nodes.clone().map(|i| matrix_bytes(&graph.node(i))).sum();
            self.steps.push(Step::Compute { nodes, staged, weights });
        }
    }

    /// The steps of one node, with these of its sources in scratch memory.
    fn stage(
        &mut self,
        graph: &GraphView<'_>,
        i: usize,
        sources: &[usize],
        card: &Card,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let has = |fault| card.profile.faults.contains(&fault);
        let mut pieces = Vec::new();
        let staged = self.stage_all(i, &graph.node(i), sources, card, scratch, &mut pieces);
        // Given back in the reverse order, before the work is done: what comes next in this stream comes after it.
        if !has(Fault::FreesInOrder) {
            pieces.reverse();
        }
        if !has(Fault::KeepsScratch) || staged.is_err() {
            pieces.iter().for_each(|&piece| scratch.free(piece));
        }
        if has(Fault::FreesTwice) {
            pieces.iter().take(1).for_each(|&piece| scratch.free(piece));
        }
        let staged = staged?;
        if has(Fault::StagesEarly) {
            staged.iter().try_for_each(Staged::run)?;
        } else {
            self.steps.extend(staged.iter().cloned().map(Step::Stage));
        }
        self.compute(graph, i..i + 1, staged);
        Ok(())
    }

    /// Allocates for each source and lets the node find it there. `pieces` are to be freed, whatever comes of it.
    fn stage_all(
        &mut self,
        i: usize,
        node: &NodeView<'_>,
        sources: &[usize],
        card: &Card,
        scratch: &mut Scratch,
        pieces: &mut Vec<Piece>,
    ) -> Result<Vec<Staged>> {
        let mut staged = Vec::new();
        for &src in sources {
            let Some(t) = node.src(src) else { continue };
            let piece = scratch.alloc(t.nbytes(), card.profile.alignment)?;
            pieces.push(piece);
            let (memory, at) = card.scratch.find(piece)?;
            self.graph.move_source(i, src, memory.kernels().clone(), at);
            let (source, start, n) = (memory_of(&t)?.clone(), t.offset(), t.nbytes());
            staged.push(Staged { source, start, n, scratch: memory, at });
        }
        Ok(staged)
    }

    /// Runs the nodes of a step; `kernels` are the queue's.
    pub fn run(
        &self,
        nodes: Range<usize>,
        staged: &[Staged],
        run_id: u64,
        kernels: &mut CpuStream,
    ) -> Result<()> {
        let first = nodes.start as u32;
        let outcome = self.graph.with_part(nodes, run_id, |part| kernels.compute(part));
        outcome.map_err(|e| Error { node: e.node.map(|node| node + first), ..e })?;
        staged.iter().try_for_each(|s| s.scratch.fill(s.at, s.n, crate::memory::POISON))
    }
}

/// Bytes of the matrix that a node multiplies, all of whose rows it reads.
fn matrix_bytes(node: &NodeView<'_>) -> u64 {
    let is_product = matches!(node.op(), Some(Op::MulMat | Op::MulMatSparse | Op::MulMatT));
    let matrix = node.src(0).filter(|w| is_product && w.flags() & TENSOR_WEIGHT != 0);
    matrix.map_or(0, |w| w.nbytes())
}

/// Bytes of scratch memory that a node takes.
pub fn workspace(node: &NodeView<'_>, profile: &Profile) -> u64 {
    let sources = staged_sources(node);
    // Pools begin each piece at a multiple of 128 at least.
    let align = profile.alignment.max(128);
    let size = |t: TensorView<'_>| t.nbytes().checked_next_multiple_of(align).unwrap_or(u64::MAX);
    sources.iter().filter_map(|&src| node.src(src)).map(size).fold(0, u64::saturating_add)
}

/// Operands that a product reads from scratch memory: all but weights, which are large.
fn staged_sources(node: &NodeView<'_>) -> Vec<usize> {
    if node.op() != Some(Op::MulMat) {
        return Vec::new();
    }
    let is_staged =
        |src: &usize| node.src(*src).is_some_and(|t| t.nbytes() > 0 && (*src > 0 || t.role() == ROLE_OTHER));
    (0..2).filter(is_staged).collect()
}

/// The memory that a tensor is in.
pub fn memory_of<'a>(t: &TensorView<'a>) -> Result<&'a Arc<Memory>> {
    let buffer = t.buffer::<SimBuffer>();
    buffer
        .map(SimBuffer::memory)
        .ok_or_else(|| Error::invalid(format!("`{}` is not in memory of a simulated device", t.name())))
}
