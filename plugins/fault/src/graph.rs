//! Tensors and graphs of the host with the wrapped plugin's buffers in the place of ours.

use crate::buffer;
use llmrt_plugin::GraphView;
use llmrt_plugin::abi::types as c;

/// A graph whose tensors are in the wrapped plugin's buffers. Nodes are the host's own.
pub struct Translated {
    // Boxed: the wrapped plugin may keep its address.
    graph: Box<c::Graph>,
    /// Pointed to by `graph`.
    _tensors: Vec<c::Tensor>,
}

impl Translated {
    /// Translates a graph.
    ///
    /// # Safety
    /// `graph` is the host's, and stays valid as long as the translation is used; its buffers are alive.
    pub unsafe fn new(graph: *const c::Graph) -> Translated {
        // SAFETY: the caller's promise.
        unsafe {
            let view = GraphView::new(&*graph);
            let tensors: Vec<c::Tensor> =
                (0..view.n_tensors() as u32).map(|i| tensor(view.tensor(i).raw())).collect();
            let tensor_stride = size_of::<c::Tensor>() as u32;
            let graph = Box::new(c::Graph { tensor_stride, tensors: tensors.as_ptr(), ..*graph });
            Translated { graph, _tensors: tensors }
        }
    }

    /// For calls of the wrapped plugin.
    pub fn as_ptr(&self) -> *const c::Graph {
        &*self.graph
    }

    /// To look at.
    pub fn view(&self) -> GraphView<'_> {
        // SAFETY: `new`'s caller promised that the nodes stay valid; the rest is our own.
        unsafe { GraphView::new(&self.graph) }
    }
}

/// One tensor, translated.
///
/// # Safety
/// `t` is a tensor of the host; its buffer is NULL or alive.
pub unsafe fn tensor(t: *const c::Tensor) -> c::Tensor {
    // SAFETY: the caller's promise.
    unsafe { c::Tensor { buffer: buffer::inner_or_same((*t).buffer), ..*t } }
}
