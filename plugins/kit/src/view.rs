//! Graphs, nodes and tensors as a plugin sees them: borrowed, checked by the host, cheap to copy.

use crate::entry::buffer as buffer_entry;
use crate::{Buffer, DType, Op};
use llmrt_abi::types as c;
use std::any::Any;

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

    /// Same number: same topology, shapes, dtypes and params.
    pub fn uid(&self) -> u64 {
        self.0.uid
    }

    /// Same number: same addresses.
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

    /// The op, if this build knows it.
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

    /// Sources, left-out optional ones included.
    pub fn n_src(&self) -> usize {
        self.raw.n_src as usize
    }

    /// Source `i`; `None` if it was left out or does not exist.
    pub fn src(&self, i: usize) -> Option<TensorView<'a>> {
        if i >= self.n_src() {
            return None;
        }
        // SAFETY: `src` has `n_src` numbers.
        let id = unsafe { *self.raw.src.add(i) };
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

/// A tensor: shape, strides and where its bytes are.
#[derive(Clone, Copy)]
pub struct TensorView<'a>(&'a c::Tensor);

// SAFETY: see `GraphView`.
unsafe impl Send for TensorView<'_> {}
// SAFETY: see `GraphView`.
unsafe impl Sync for TensorView<'_> {}

impl<'a> TensorView<'a> {
    /// Looks at a tensor of the host.
    ///
    /// # Safety
    /// The tensor does not change during `'a`, and its buffer is NULL or alive.
    pub unsafe fn new(tensor: &'a c::Tensor) -> TensorView<'a> {
        TensorView(tensor)
    }

    /// The struct itself.
    pub fn raw(&self) -> &'a c::Tensor {
        self.0
    }

    /// Its row in the graph's table.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The dtype, if this build knows it.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_id(self.0.dtype)
    }

    /// The dtype's number.
    pub fn dtype_id(&self) -> u32 {
        self.0.dtype
    }

    /// `abi::types::ROLE_*`.
    pub fn role(&self) -> u32 {
        self.0.role
    }

    /// `abi::types::TENSOR_*` bits.
    pub fn flags(&self) -> u32 {
        self.0.flags
    }

    /// Layout made by `seal`; 0: canonical.
    pub fn layout_id(&self) -> u32 {
        self.0.layout_id
    }

    /// Elements per dim, innermost first.
    pub fn ne(&self) -> [usize; 4] {
        self.0.ne.map(|n| n as usize)
    }

    /// Bytes between elements (blocks for dim 0) of a dim.
    pub fn nb(&self) -> [usize; 4] {
        self.0.nb.map(|n| n as usize)
    }

    /// Elements.
    pub fn n_elements(&self) -> usize {
        self.ne().iter().product()
    }

    /// Rows of dim 0: elements of the other dims.
    pub fn n_rows(&self) -> usize {
        self.ne()[1..].iter().product()
    }

    /// Bytes from first to past-the-last element.
    pub fn nbytes(&self) -> u64 {
        self.0.nbytes
    }

    /// First byte in the buffer.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// For logs only.
    pub fn name(&self) -> std::borrow::Cow<'a, str> {
        // SAFETY: a name has `len` bytes that do not change during `'a`.
        unsafe { crate::host::str_of(self.0.name) }
    }

    /// Whether memory was given to it.
    pub fn has_buffer(&self) -> bool {
        !self.0.buffer.is_null()
    }

    /// Its buffer, if it is this plugin's and of this type.
    pub fn buffer<B: Buffer>(&self) -> Option<&'a B> {
        // SAFETY: the buffer is NULL or alive during `'a`.
        let buffer: &'a dyn Any = unsafe { buffer_entry::own(self.0.buffer) }?;
        buffer.downcast_ref()
    }

    /// Address of its first byte, if its buffer is in memory that the CPU may read and write.
    pub fn host_ptr(&self) -> Option<*mut u8> {
        // SAFETY: the buffer is NULL or alive.
        let base = unsafe { buffer_entry::host_ptr_of(self.0.buffer) }?;
        Some(base.wrapping_add(self.0.offset as usize))
    }

    /// Whether elements follow each other without gaps in dim order.
    pub fn is_contiguous(&self) -> bool {
        let Some(info) = self.dtype().map(DType::info) else { return false };
        let (ne, nb) = (self.ne(), self.nb());
        let mut expected = info.block_bytes as usize;
        for dim in 0..4 {
            if ne[dim] != 1 && nb[dim] != expected {
                return false;
            }
            let n = if dim == 0 { ne[0] / info.block_elems as usize } else { ne[dim] };
            expected = expected.saturating_mul(n);
        }
        true
    }
}

/// A device of some plugin, as [`crate::Device::accepts`] sees it.
#[derive(Clone, Copy)]
pub struct PeerView<'a>(pub(crate) &'a c::Device);

impl<'a> PeerView<'a> {
    fn info(&self) -> &'a c::DeviceInfo {
        // SAFETY: a device's info is read-only data that lives as long as the device.
        unsafe { &*self.0.info }
    }

    /// `abi::types::DEVICE_*`.
    pub fn kind(&self) -> u32 {
        self.info().kind
    }

    /// `abi::types::CAP_*` bits.
    pub fn caps(&self) -> u64 {
        self.info().caps
    }

    /// Its name within its plugin.
    pub fn name(&self) -> std::borrow::Cow<'a, str> {
        // SAFETY: a device's texts live as long as the device.
        unsafe { crate::host::str_of(self.info().name) }
    }

    /// `abi::types::BUFFER_*` and `BT_*` of one of its buffer types.
    pub fn buffer_type(&self, bt: u32) -> Option<(u32, u32)> {
        let info = self.info();
        if bt >= info.n_buffer_types {
            return None;
        }
        let at = info.buffer_types.cast::<u8>().wrapping_add(bt as usize * info.bt_stride as usize);
        // SAFETY: row `bt` exists, and rows are `bt_stride` bytes apart.
        let row = unsafe { &*at.cast::<c::BufferType>() };
        Some((row.kind, row.flags))
    }

    /// Whether it is a device of this plugin.
    pub fn is_ours(&self) -> bool {
        crate::entry::device::is_ours(self.0)
    }
}
