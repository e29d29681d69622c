//! A graph of the host with other memory under its tensors, for devices whose buffers only stand for memory elsewhere:
//! kernels of another plugin's library run on the copy as if its memory were their own.

use crate::entry::buffer;
use crate::{Buffer, GraphView, Result, TensorView};
use llmrt_abi::types as c;
use std::ops::Range;
use std::sync::Arc;

/// A buffer of this plugin that the host never sees.
pub struct OwnBuffer(*mut c::Buffer);

// SAFETY: `Buffer` is `Send` and `Sync`, and this is the only owner.
unsafe impl Send for OwnBuffer {}
// SAFETY: as above.
unsafe impl Sync for OwnBuffer {}

impl OwnBuffer {
    /// Makes `inner` usable as memory of tensors of a [`GraphCopy`].
    pub fn new(inner: Box<dyn Buffer>) -> OwnBuffer {
        OwnBuffer(buffer::into_raw(inner))
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        // SAFETY: made by `into_raw` in `new`, destroyed once.
        unsafe { buffer::free(self.0) }
    }
}

/// A graph that owns its rows and what they point to, names left out.
pub struct GraphCopy {
    graph: c::Graph,
    /// Pointed to by `graph`.
    tensors: Vec<c::Tensor>,
    nodes: Vec<c::Node>,
    /// Pointed to by the nodes.
    srcs: Vec<Vec<u32>>,
    _params: Vec<Vec<u64>>,
    /// Pointed to by the tensors.
    buffers: Vec<Arc<OwnBuffer>>,
}

// SAFETY: the pointers point into vectors and buffers that the struct keeps and nothing changes.
unsafe impl Send for GraphCopy {}
// SAFETY: as above.
unsafe impl Sync for GraphCopy {}

impl GraphCopy {
    /// Copies a graph. `memory` gives each tensor that has a buffer the one to use instead; its offset stays.
    pub fn new(
        graph: &GraphView<'_>,
        mut memory: impl FnMut(&TensorView<'_>) -> Result<Arc<OwnBuffer>>,
    ) -> Result<GraphCopy> {
        let mut buffers = Vec::new();
        let mut tensors = Vec::with_capacity(graph.n_tensors());
        for i in 0..graph.n_tensors() as u32 {
            let tensor = graph.tensor(i);
            let mut row = c::Tensor { name: c::Str::EMPTY, ..*tensor.raw() };
            if tensor.has_buffer() {
                let own = memory(&tensor)?;
                row.buffer = own.0;
                buffers.push(own);
            }
            tensors.push(row);
        }
        let (mut nodes, mut srcs, mut params) = (Vec::new(), Vec::new(), Vec::new());
        for node in graph.nodes() {
            let src: Vec<u32> =
                (0..node.n_src()).map(|i| node.src(i).map_or(c::NO_TENSOR, |t| t.id())).collect();
            let words = words(node.params_bytes());
            // As many rows as were copied: the host may have appended absent ones.
            let n_src = src.len() as u32;
            nodes.push(c::Node { src: src.as_ptr(), n_src, params: words.as_ptr().cast(), ..*node.raw() });
            srcs.push(src);
            params.push(words);
        }
        let rows = c::Graph {
            struct_size: size_of::<c::Graph>() as u32,
            tensor_stride: size_of::<c::Tensor>() as u32,
            node_stride: size_of::<c::Node>() as u32,
            n_tensors: tensors.len() as u32,
            n_nodes: nodes.len() as u32,
            flags: graph.raw().flags,
            // Its memory is elsewhere and may move: 0, so that it is not taken for the graph itself or another copy.
            uid: 0,
            binding_gen: graph.binding_gen(),
            run_id: graph.run_id(),
            tensors: tensors.as_ptr(),
            nodes: nodes.as_ptr(),
        };
        Ok(GraphCopy { graph: rows, tensors, nodes, srcs, _params: params, buffers })
    }

    /// Lets one node alone find a source, one that is there, elsewhere: at `offset` of `memory`.
    pub fn move_source(&mut self, node: usize, src: usize, memory: Arc<OwnBuffer>, offset: u64) {
        let id = self.tensors.len() as u32;
        let moved = self.tensors[self.srcs[node][src] as usize];
        let (view_src, view_offset) = (c::NO_TENSOR, 0);
        self.tensors.push(c::Tensor { id, buffer: memory.0, offset, view_src, view_offset, ..moved });
        self.srcs[node][src] = id;
        self.buffers.push(memory);
        (self.graph.tensors, self.graph.n_tensors) = (self.tensors.as_ptr(), id + 1);
    }

    /// Runs `body` on some of the nodes, for the run with this id: a plan's graph is copied before it has any.
    pub fn with_part<T>(
        &self,
        nodes: Range<usize>,
        run_id: u64,
        body: impl FnOnce(&GraphView<'_>) -> T,
    ) -> T {
        let part = &self.nodes[nodes];
        let graph = c::Graph { n_nodes: part.len() as u32, nodes: part.as_ptr(), run_id, ..self.graph };
        // SAFETY: the copy is as consistent as the original, and nothing in it changes during the call.
        body(&unsafe { GraphView::new(&graph) })
    }
}

/// Bytes in words, so that every params struct is aligned; padded with zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}
