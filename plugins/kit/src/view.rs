//! Graphs and nodes as a plugin sees them: borrowed, checked by the host, cheap to copy. Their tensors: [`TensorView`].

use crate::{Op, TensorView};
use llmrt_abi::types as c;

/// Nodes in execution order and the tensors they name.
#[derive(Clone, Copy)]
pub struct GraphView<'a>(&'a c::Graph);

// SAFETY: the host neither changes nor frees a graph while a plugin works on it, so shared reads from any thread are
// sound; the pointers inside are only read.
unsafe impl Send for GraphView<'_> {}
// SAFETY: as above.
unsafe impl Sync for GraphView<'_> {}

impl<'a> GraphView<'a> {
    /// Looks at a graph of the host.
    ///
    /// # Safety
    /// The graph is self-consistent and neither it nor what it points to changes during `'a`.
    pub unsafe fn new(graph: &'a c::Graph) -> GraphView<'a> {
        GraphView(graph)
    }

    /// The same graph without a lifetime, for a plan to keep.
    ///
    /// # Safety
    /// Not used after the plan was destroyed (or, for `compute`, after the stream was synchronised).
    pub unsafe fn detach(&self) -> GraphView<'static> {
        // SAFETY: the graph lives as long as the caller promises to use it.
        GraphView(unsafe { &*std::ptr::from_ref(self.0) })
    }

    /// The struct itself.
    pub fn raw(&self) -> &'a c::Graph {
        self.0
    }

    /// Nodes.
    pub fn n_nodes(&self) -> usize {
        self.0.n_nodes as usize
    }

    /// Rows of the tensor table.
    pub fn n_tensors(&self) -> usize {
        self.0.n_tensors as usize
    }

    /// Node `i` in execution order. Panics past the end; the kit reports it.
    pub fn node(&self, i: usize) -> NodeView<'a> {
        assert!(i < self.n_nodes(), "node {i} of {}", self.n_nodes());
        let at = self.0.nodes.cast::<u8>().wrapping_add(i * self.0.node_stride as usize);
        // SAFETY: row `i` exists, and rows are `node_stride` bytes apart.
        NodeView { graph: *self, raw: unsafe { &*at.cast::<c::Node>() } }
    }

    /// All nodes in execution order.
    pub fn nodes(self) -> impl Iterator<Item = NodeView<'a>> {
        (0..self.n_nodes()).map(move |i| self.node(i))
    }

    /// Tensor row `id`. Panics past the end; the kit reports it.
    pub fn tensor(&self, id: u32) -> TensorView<'a> {
        assert!(id < self.0.n_tensors, "tensor {id} of {}", self.0.n_tensors);
        let at = self.0.tensors.cast::<u8>().wrapping_add(id as usize * self.0.tensor_stride as usize);
        // SAFETY: row `id` exists, and rows are `tensor_stride` bytes apart.
        TensorView(unsafe { &*at.cast::<c::Tensor>() })
    }

    /// Same number: same topology, shapes, dtypes and params; 0: unknown.
    pub fn uid(&self) -> u64 {
        self.0.uid
    }

    /// Same number, and same [`GraphView::uid`]: same addresses.
    pub fn binding_gen(&self) -> u64 {
        self.0.binding_gen
    }

    /// For [`crate::Host::cancelled`].
    pub fn run_id(&self) -> u64 {
        self.0.run_id
    }
}

/// One operation of a graph.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    graph: GraphView<'a>,
    raw: &'a c::Node,
}

// SAFETY: see `GraphView`.
unsafe impl Send for NodeView<'_> {}
// SAFETY: see `GraphView`.
unsafe impl Sync for NodeView<'_> {}

impl<'a> NodeView<'a> {
    /// The struct itself.
    pub fn raw(&self) -> &'a c::Node {
        self.raw
    }

    /// The op, if this build has it.
    pub fn op(&self) -> Option<Op> {
        Op::from_id(self.raw.op)
    }

    /// The op's number; custom ones start at 0x80000000.
    pub fn op_id(&self) -> u32 {
        self.raw.op
    }

    /// Version of the op's meaning.
    pub fn op_version(&self) -> u32 {
        self.raw.op_version
    }

    /// The result.
    pub fn dst(&self) -> TensorView<'a> {
        self.graph.tensor(self.raw.dst)
    }

    /// Sources up to the last present one; optional ones before it that are left out count. A newer host may append
    /// `NO_TENSOR` rows, which mean the same as no rows.
    pub fn n_src(&self) -> usize {
        let mut n = self.raw.n_src as usize;
        while n > 0 && self.src_row(n - 1) == c::NO_TENSOR {
            n -= 1;
        }
        n
    }

    /// Whether the sources are those of the op table's row: every required one is present, and none past the last one
    /// that this build has. A custom op has no row: its plugin checks.
    pub fn has_known_sources(&self) -> bool {
        self.op().map(Op::info).is_none_or(|info| {
            let is_present = |i: u32| self.src(i as usize).is_some();
            (0..info.min_src).all(is_present) && self.n_src() <= info.max_src as usize
        })
    }

    /// Row of source `i` in the graph's table, or `NO_TENSOR`. `i` is below the struct's `n_src`.
    fn src_row(&self, i: usize) -> u32 {
        assert!(i < self.raw.n_src as usize, "source {i} of {}", self.raw.n_src);
        // SAFETY: `src` has `n_src` numbers.
        unsafe { *self.raw.src.add(i) }
    }

    /// Source `i`; `None` if it was left out or does not exist.
    pub fn src(&self, i: usize) -> Option<TensorView<'a>> {
        if i >= self.raw.n_src as usize {
            return None;
        }
        let id = self.src_row(i);
        (id != c::NO_TENSOR).then(|| self.graph.tensor(id))
    }

    /// The op's params, to be read with `from_bytes` of its struct in [`crate::abi::op`].
    pub fn params_bytes(&self) -> &'a [u8] {
        if self.raw.params_size == 0 || self.raw.params.is_null() {
            return &[];
        }
        // SAFETY: `params` has `params_size` bytes that do not change during `'a`.
        unsafe { std::slice::from_raw_parts(self.raw.params.cast(), self.raw.params_size as usize) }
    }
}
