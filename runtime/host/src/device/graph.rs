//! Graphs as they cross the ABI: built from descriptions, checked once, self-contained afterwards.
//!
//! The check is the proof the unsafe calls rely on: every tensor is inside its buffer, every node names tensors of
//! the graph, every pointer points into the graph itself, and the graph keeps its buffers alive.

use super::Buffer;
use super::tensor::{TensorDesc, check_fits};
use crate::error::{Error, Result};
use llmrt_abi::types as c;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A node to put into a graph.
#[derive(Clone, Copy)]
pub struct NodeDesc<'a> {
    /// An [`llmrt_abi::Op`] number, or a custom id.
    pub op: u32,
    /// Version of the op's meaning.
    pub op_version: u32,
    /// Row of the result.
    pub dst: u32,
    /// Rows of the sources; `None` for one left out.
    pub srcs: &'a [Option<u32>],
    /// The op's params struct, as bytes.
    pub params: &'a [u8],
}

/// A graph that plugins can run. Cheap to clone; a change to a clone or to a graph in flight copies it first.
#[derive(Clone)]
pub struct RawGraph(Arc<Rows>);

/// Builds a [`RawGraph`].
#[derive(Default)]
pub struct RawGraphBuilder {
    rows: Rows,
}

/// The rows, and what their pointers point to. Pointers are set by `link` after the last change.
struct Rows {
    graph: c::Graph,
    tensors: Vec<c::Tensor>,
    nodes: Vec<c::Node>,
    buffers: Vec<Option<Buffer>>,
    /// Where each tensor's name starts in `names`.
    name_starts: Vec<usize>,
    names: String,
    /// Where each node's sources start in `srcs`.
    src_starts: Vec<usize>,
    srcs: Vec<u32>,
    /// Where each node's params start in `params`; in words, so that every struct is aligned.
    param_starts: Vec<usize>,
    params: Vec<u64>,
    /// Copies of the rows at the graph's strides, where these are larger than a row.
    spread: Spread,
}

/// Rows with padding after each.
#[derive(Default)]
struct Spread {
    tensors: Vec<u64>,
    nodes: Vec<u64>,
}

// SAFETY: the pointers point into the struct itself and to buffers it keeps, all of which are `Send` and `Sync`.
unsafe impl Send for Rows {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Rows {}

/// Source of `uid` and `binding_gen`: never the same number twice.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl RawGraphBuilder {
    /// No tensor, no node.
    pub fn new() -> RawGraphBuilder {
        RawGraphBuilder::default()
    }

    /// Adds a tensor; gives its row.
    pub fn tensor(&mut self, desc: &TensorDesc<'_>) -> Result<u32> {
        let rows = &mut self.rows;
        let id = row_number(rows.tensors.len(), "tensors")?;
        let nbytes = desc.nbytes()?;
        if let Some(buffer) = desc.buffer {
            check_fits(desc.name, desc.offset, nbytes, buffer)?;
        }
        if let Some((src, _)) = desc.view
            && src as usize >= rows.tensors.len()
        {
            return Err(Error::invalid(
                format!("tensor `{}`", desc.name),
                format!("views row {src}, not there yet"),
            ));
        }
        if let Some((src, _)) = desc.view
            && rows.tensors[src as usize].view_src != c::NO_TENSOR
        {
            let problem = format!("views row {src}, itself a view; name the row that owns the memory");
            return Err(Error::invalid(format!("tensor `{}`", desc.name), problem));
        }
        let buffer = desc.buffer.map_or(std::ptr::null_mut(), Buffer::as_ptr);
        let name = c::Str { ptr: std::ptr::null(), len: desc.name.len() as u64 };
        rows.tensors.push(c::Tensor { id, buffer, name, ..desc.to_abi(nbytes) });
        rows.buffers.push(desc.buffer.cloned());
        rows.name_starts.push(rows.names.len());
        rows.names.push_str(desc.name);
        Ok(id)
    }

    /// Appends a node.
    pub fn node(&mut self, desc: &NodeDesc<'_>) -> Result<()> {
        let rows = &mut self.rows;
        let i = row_number(rows.nodes.len(), "nodes")?;
        for row in desc.srcs.iter().flatten().chain([&desc.dst]) {
            if *row as usize >= rows.tensors.len() {
                return Err(Error::invalid(
                    format!("node {i}"),
                    format!("names tensor row {row}, which is not there"),
                ));
            }
        }
        rows.src_starts.push(rows.srcs.len());
        rows.srcs.extend(desc.srcs.iter().map(|s| s.unwrap_or(c::NO_TENSOR)));
        rows.param_starts.push(rows.params.len());
        rows.params.extend(desc.params.chunks(8).map(|chunk| {
            // Bytes after the last one are padding that no reader may use: all ones, so that a misread shows.
            let mut word = [0xff; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        }));
        rows.nodes.push(c::Node {
            op: desc.op,
            op_version: desc.op_version,
            flags: 0,
            dst: desc.dst,
            src: std::ptr::null(),
            n_src: desc.srcs.len() as u32,
            params_size: desc.params.len() as u32,
            params: std::ptr::null(),
        });
        Ok(())
    }

    /// The graph, with a `uid` of its own.
    pub fn build(mut self) -> RawGraph {
        self.rows.graph.uid = fresh();
        self.rows.graph.binding_gen = fresh();
        let mut graph = Arc::new(self.rows);
        if let Some(rows) = Arc::get_mut(&mut graph) {
            rows.link();
        }
        RawGraph(graph)
    }
}

fn row_number(n: usize, what: &str) -> Result<u32> {
    u32::try_from(n)
        .ok()
        .filter(|&n| n < c::NO_TENSOR)
        .ok_or_else(|| Error::invalid("graph", format!("{n} {what}")))
}

impl RawGraph {
    /// Nodes.
    pub fn n_nodes(&self) -> usize {
        self.0.nodes.len()
    }

    /// Tensors.
    pub fn n_tensors(&self) -> usize {
        self.0.tensors.len()
    }

    /// Same number: same topology, shapes, dtypes and params.
    pub fn uid(&self) -> u64 {
        self.0.graph.uid
    }

    /// Same number: same addresses.
    pub fn binding_gen(&self) -> u64 {
        self.0.graph.binding_gen
    }

    /// Sets the uid: graphs with the same uid have equal topology, shapes, dtypes and params.
    pub fn set_uid(&mut self, uid: u64) {
        self.rows_mut().graph.uid = uid;
    }

    /// The number under which this run can be cancelled.
    pub fn set_run_id(&mut self, run_id: u64) {
        if self.0.graph.run_id != run_id {
            self.rows_mut().graph.run_id = run_id;
        }
    }

    /// Gives a tensor other memory.
    pub fn bind(&mut self, tensor: u32, buffer: &Buffer, offset: u64) -> Result<()> {
        let Some(row) = self.0.tensors.get(tensor as usize) else {
            return Err(Error::invalid("bind", format!("tensor row {tensor} of {}", self.n_tensors())));
        };
        check_fits(&self.0.name(tensor as usize), offset, row.nbytes, buffer)?;
        let rows = self.rows_mut();
        rows.tensors[tensor as usize].buffer = buffer.as_ptr();
        rows.tensors[tensor as usize].offset = offset;
        rows.buffers[tensor as usize] = Some(buffer.clone());
        rows.graph.binding_gen = fresh();
        rows.spread_rows();
        Ok(())
    }

    /// For tests of plugins: the same graph as a host with longer rows would pass it. Every row of tensors and nodes
    /// is followed by `n_words` words that are no fields of this version.
    pub fn with_longer_rows(&self, n_words: usize) -> RawGraph {
        let mut graph = self.clone();
        let rows = graph.rows_mut();
        rows.graph.tensor_stride = (size_of::<c::Tensor>() + n_words * size_of::<u64>()) as u32;
        rows.graph.node_stride = (size_of::<c::Node>() + n_words * size_of::<u64>()) as u32;
        rows.link();
        graph
    }

    /// The buffer of a tensor.
    pub fn buffer(&self, tensor: u32) -> Option<&Buffer> {
        self.0.buffers.get(tensor as usize)?.as_ref()
    }

    /// For calls of the ABI; valid as long as this graph or a clone lives unchanged.
    pub(crate) fn as_ptr(&self) -> *const c::Graph {
        &self.0.graph
    }

    /// The first tensor that a node uses and that has no memory.
    pub(crate) fn first_unbound(&self) -> Option<String> {
        let rows = &*self.0;
        let used =
            rows.srcs.iter().copied().chain(rows.nodes.iter().map(|n| n.dst)).filter(|&t| t != c::NO_TENSOR);
        used.map(|t| t as usize).find(|&t| rows.buffers[t].is_none()).map(|t| rows.name(t))
    }

    /// The tensors as the plugin sees them.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &c::Tensor> {
        self.0.tensors.iter()
    }

    /// The buffers that nodes may touch.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.0.buffers.iter().flatten()
    }

    /// Unique access to the rows; copies them first if they are shared.
    fn rows_mut(&mut self) -> &mut Rows {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = Arc::new((*self.0).clone());
            // The copy's pointers still point into the original.
            Arc::make_mut(&mut self.0).link();
        }
        Arc::make_mut(&mut self.0)
    }
}

impl Rows {
    /// Points everything to where it is now.
    fn link(&mut self) {
        for (tensor, &start) in self.tensors.iter_mut().zip(&self.name_starts) {
            tensor.name.ptr = self.names[start..].as_ptr();
        }
        for (i, node) in self.nodes.iter_mut().enumerate() {
            node.src = self.srcs[self.src_starts[i]..].as_ptr();
            node.params = self.params[self.param_starts[i]..].as_ptr().cast();
        }
        self.graph.n_tensors = self.tensors.len() as u32;
        self.graph.n_nodes = self.nodes.len() as u32;
        self.graph.tensors = self.tensors.as_ptr();
        self.graph.nodes = self.nodes.as_ptr();
        self.spread_rows();
    }

    /// Copies the rows to the offsets that the strides give, unless they are contiguous.
    fn spread_rows(&mut self) {
        if self.graph.tensor_stride as usize == size_of::<c::Tensor>() {
            return;
        }
        self.spread.tensors = spread(&self.tensors, self.graph.tensor_stride);
        self.spread.nodes = spread(&self.nodes, self.graph.node_stride);
        self.graph.tensors = self.spread.tensors.as_ptr().cast();
        self.graph.nodes = self.spread.nodes.as_ptr().cast();
    }

    fn name(&self, tensor: usize) -> String {
        let end = self.name_starts.get(tensor + 1).copied().unwrap_or(self.names.len());
        self.names[self.name_starts[tensor]..end].to_string()
    }
}

/// Rows `stride` bytes apart, and ones between them.
fn spread<T: Copy>(rows: &[T], stride: u32) -> Vec<u64> {
    let words = stride as usize / size_of::<u64>();
    let mut all = vec![u64::MAX; (words * rows.len()).max(1)];
    for (row, place) in rows.iter().zip(all.chunks_exact_mut(words)) {
        // SAFETY: tensors and nodes are plain data without padding, of whole words and no more than a stride.
        unsafe { place.as_mut_ptr().cast::<T>().write(*row) };
    }
    all
}

impl Clone for Rows {
    /// The copy's pointers still point into the original until `link`; only `rows_mut` makes copies.
    fn clone(&self) -> Rows {
        Rows {
            graph: self.graph,
            tensors: self.tensors.clone(),
            nodes: self.nodes.clone(),
            buffers: self.buffers.clone(),
            name_starts: self.name_starts.clone(),
            names: self.names.clone(),
            src_starts: self.src_starts.clone(),
            srcs: self.srcs.clone(),
            param_starts: self.param_starts.clone(),
            params: self.params.clone(),
            spread: Spread::default(),
        }
    }
}

impl Default for Rows {
    fn default() -> Rows {
        Rows {
            graph: c::Graph {
                struct_size: size_of::<c::Graph>() as u32,
                tensor_stride: size_of::<c::Tensor>() as u32,
                node_stride: size_of::<c::Node>() as u32,
                n_tensors: 0,
                n_nodes: 0,
                flags: 0,
                uid: 0,
                binding_gen: 0,
                run_id: 0,
                tensors: std::ptr::null(),
                nodes: std::ptr::null(),
            },
            tensors: Vec::new(),
            nodes: Vec::new(),
            buffers: Vec::new(),
            name_starts: Vec::new(),
            names: String::new(),
            src_starts: Vec::new(),
            srcs: Vec::new(),
            param_starts: Vec::new(),
            params: Vec::new(),
            spread: Spread::default(),
        }
    }
}
