//! A graph of the host with other memory under its tensors, for devices whose buffers only stand for memory elsewhere:
//! kernels of another plugin's library run on the copy as if its memory were their own.

use crate::entry::buffer;
use crate::{Buffer, GraphView, Result, TensorView};
use llmrt_abi::types as c;
use std::sync::Arc;

/// A buffer of this plugin that the host never sees.
pub struct OwnBuffer(*mut c::Buffer);

// SAFETY: `Buffer` is `Send` and `Sync`, and this is the only owner.
unsafe impl Send for OwnBuffer {}
// SAFETY: as above.
unsafe impl Sync for OwnBuffer {}

impl OwnBuffer {
    /// Makes tensors of a [`GraphCopy`] able to lie in `inner`.
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
    _tensors: Vec<c::Tensor>,
    _nodes: Vec<c::Node>,
    /// Pointed to by the nodes.
    _srcs: Vec<Vec<u32>>,
    _params: Vec<Vec<u64>>,
    /// Pointed to by the tensors.
    _buffers: Vec<Arc<OwnBuffer>>,
}

// SAFETY: the pointers point into vectors and buffers that the struct keeps and nobody changes.
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
            nodes.push(c::Node { src: src.as_ptr(), params: words.as_ptr().cast(), ..*node.raw() });
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
            uid: graph.uid(),
            binding_gen: graph.binding_gen(),
            run_id: graph.run_id(),
            tensors: tensors.as_ptr(),
            nodes: nodes.as_ptr(),
        };
        Ok(GraphCopy {
            graph: rows,
            _tensors: tensors,
            _nodes: nodes,
            _srcs: srcs,
            _params: params,
            _buffers: buffers,
        })
    }

    /// The copy, to be run.
    pub fn view(&self) -> GraphView<'_> {
        // SAFETY: the copy is as consistent as the original, and nothing in it changes while it lives.
        unsafe { GraphView::new(&self.graph) }
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
