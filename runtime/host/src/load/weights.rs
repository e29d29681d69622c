//! Weights on devices: which tensor is requested on which device, and where it was placed.

use std::collections::HashMap;
use std::sync::Arc;

use llmrt_abi::types::{BT_COPY_MATRICES, TENSOR_WEIGHT};
use llmrt_abi::{DType, Op};
use llmrt_gguf::TensorInfo;
use llmrt_graph::rows::Part;
use llmrt_graph::tensor::{Role, Shape, contiguous_strides};
use llmrt_graph::{Graph, Node, Tensor};

use super::mapping::Mapping;
use super::mlock::MemoryLocks;
use super::pieces::Pieces;
use super::place::{self, Extent};
use super::seal_cache::Watched;
use super::{Error, LoadMode, ModelFiles, Result, SealCache};
use crate::{Buffer, Device, TensorDesc};

/// A request to place a tensor on a device.
#[derive(Clone, Debug)]
pub struct WeightRequest {
    /// Its name in the file.
    pub name: String,
    /// The type that the model expects.
    pub dtype: DType,
    /// The shape that the model expects, innermost dim first.
    pub ne: Shape,
    /// What it is for.
    pub role: Role,
    /// Of a part that is cut by a list: its rows or columns of the tensor in the file.
    pub listed: Option<Arc<[u32]>>,
    /// Row of the device in the executor's list; with the name, the key to the weight.
    pub row: usize,
    /// The device.
    pub device: Arc<Device>,
}

impl WeightRequest {
    /// A weight of a graph on a device.
    pub fn new(g: &Graph, t: Tensor, row: usize, device: &Arc<Device>) -> WeightRequest {
        let def = g.def(t);
        let (name, dtype, ne, listed) = (def.name.clone(), def.dtype, def.ne, def.listed.clone());
        WeightRequest { name, dtype, ne, role: role_on(g, t, device), listed, row, device: device.clone() }
    }

    /// The tensor in the files, or a part of one, if it is what the model expects; and where its bytes are.
    pub(super) fn find(&self, files: &ModelFiles) -> Result<(TensorInfo, Pieces)> {
        let (info, pieces) = match Part::of_name(&self.name) {
            None => (files.tensor(&self.name)?.clone(), Pieces::Together),
            Some(part) => {
                let whole = files.tensor(part.whole)?;
                let found = Pieces::of(whole, part, self.listed.as_deref());
                found.ok_or_else(|| Error::WrongTensor {
                    tensor: self.name.clone(),
                    found: format!("{} {:?}", whole.dtype, whole.ne),
                    expected: format!("a part of {} {:?}", self.dtype, self.ne),
                })?
            }
        };
        if (info.dtype, info.ne) != (self.dtype, self.ne) {
            return Err(Error::WrongTensor {
                tensor: self.name.clone(),
                found: format!("{} {:?}", info.dtype, info.ne),
                expected: format!("{} {:?}", self.dtype, self.ne),
            });
        }
        Ok((info, pieces))
    }

    /// The tensor for calls of a device, at `offset` of a buffer.
    pub(super) fn desc(&self, offset: u64) -> TensorDesc<'_> {
        TensorDesc {
            dtype: self.dtype,
            ne: self.ne,
            nb: contiguous_strides(self.dtype, self.ne).unwrap_or_default(), // the file's table has passed it
            role: self.role as u32,
            flags: TENSOR_WEIGHT,
            layout_id: 0,
            buffer: None,
            offset,
            view: None,
            name: &self.name,
        }
    }
}

/// What a weight is for. On devices that request copies of matrices these are the weights that products multiply as a
/// whole and that no other op but `get_rows` reads, whatever the model calls them, and those whose rows products pick.
fn role_on(g: &Graph, t: Tensor, device: &Device) -> Role {
    let role = g.def(t).role;
    if device.info().buffer_types[0].flags & BT_COPY_MATRICES == 0 {
        return if role == Role::MatrixOfZeros { Role::Matrix } else { role };
    }
    let is_use = |node: &&Node| node.src.iter().flatten().any(|&src| g.owner(src) == t);
    let is_left = |node: &Node| {
        let (left, others) = node.src.split_first().unwrap_or((&None, &[]));
        *left == Some(t) && others.iter().flatten().all(|&src| g.owner(src) != t)
    };
    let is_product = |node: &Node| matches!(node.op, Op::MulMat | Op::MulMatId);
    let uses = g.nodes.iter().filter(is_use);
    let is_known = |node: &Node| is_left(node) && (is_product(node) || node.op == Op::GetRows);
    let is_matrix = uses.clone().any(is_product) && uses.clone().all(is_known);
    let is_mul_mat = |node: &Node| node.op == Op::MulMat;
    let picks = |node: &Node| is_left(node) && matches!(node.op, Op::MulMatSparse | Op::MulMatT);
    let is_picked = uses.clone().any(picks) && uses.clone().all(picks);
    match (is_matrix, role) {
        _ if is_picked => Role::PickedRows,
        (true, Role::Experts) => Role::Experts,
        (true, Role::MatrixOfZeros) if uses.clone().all(is_mul_mat) => Role::MatrixOfZeros,
        (true, _) => Role::Matrix,
        (false, Role::Matrix | Role::MatrixOfZeros | Role::PickedRows | Role::Experts) => Role::Other,
        (false, _) => role,
    }
}

/// A weight on a device.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its memory; several weights share it.
    pub buffer: Buffer,
    /// First byte in the buffer.
    pub offset: u64,
    /// Layout that the device made; 0: canonical.
    pub layout_id: u32,
    /// `abi::types::LAYOUT_*` bits.
    pub layout_flags: u32,
    /// Whether the device has sealed it, or was to.
    pub is_sealed: bool,
}

/// How to load. The default: mapped, nothing checked or kept, no progress.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Map or read, lock or not.
    pub mode: LoadMode,
    /// Look at every number of the model.
    pub check_tensors: bool,
    /// Where sealed copies of matrices are kept between runs; `None`: nowhere.
    pub seal_cache: Option<&'a SealCache>,
    /// Gets the part that is done, from 0 to 1, never less than before; 1 comes last and once. `false` cancels.
    pub progress: Option<&'a mut dyn FnMut(f32) -> bool>,
}

/// All weights of a model, by name and device row.
#[derive(Debug)]
pub struct Weights {
    // Locks end before the memory that the buffers keep.
    pub(super) locks: MemoryLocks,
    pub(super) placed: HashMap<usize, HashMap<String, Placed>>,
    pub(super) warnings: Vec<String>,
    /// What devices use in place, with the index of its file.
    pub(super) maps: Vec<(usize, Arc<Mapping>)>,
    /// Files of sealed copies that devices use in place.
    pub(super) sealed: Vec<Watched>,
    mode: LoadMode,
}

/// Loads weights. On an error nothing stays allocated or mapped.
pub fn load(files: &ModelFiles, requests: &[WeightRequest], options: LoadOptions<'_>) -> Result<Weights> {
    let (locks, placed, warnings, maps, sealed) = Default::default();
    let mut weights = Weights { locks, placed, warnings, maps, sealed, mode: options.mode };
    place::place(&mut weights, files, requests, Extent::WholeFiles, options)?;
    Ok(weights)
}

impl Weights {
    /// A weight on a device.
    pub fn get(&self, name: &str, row: usize) -> Option<&Placed> {
        self.placed.get(&row)?.get(name)
    }

    /// An error if a file of which a device uses pages in place was truncated, or could not be read: what was computed
    /// since is worthless. `files` are those that the weights were loaded from.
    pub fn check_files(&self, files: &ModelFiles) -> Result<()> {
        files.check_maps(self.maps.iter().map(|(file, mapping)| (*file, &**mapping)))?;
        self.sealed.iter().try_for_each(|(file, mapping)| mapping.check(file))
    }

    /// Gives all of them back.
    pub(crate) fn clear(&mut self) {
        self.locks.undo(0);
        self.placed.clear();
        self.maps.clear();
        self.sealed.clear();
    }

    /// Loads one more weight, or one on one more device. What is there already stays as it is.
    pub fn add(&mut self, files: &ModelFiles, request: &WeightRequest) -> Result<()> {
        if self.get(&request.name, request.row).is_some() {
            return Ok(());
        }
        let options = LoadOptions { mode: self.mode, ..LoadOptions::default() };
        place::place(self, files, std::slice::from_ref(request), Extent::UsedParts, options)
    }

    /// Weights of a device, in no order.
    pub fn on(&self, row: usize) -> impl Iterator<Item = (&str, &Placed)> {
        self.placed.get(&row).into_iter().flatten().map(|(name, placed)| (name.as_str(), placed))
    }

    /// Bytes of all buffers with weights of a device: what was allocated, or is used in place.
    pub fn buffer_bytes(&self, row: usize) -> u64 {
        let mut buffers: Vec<&Buffer> = Vec::new();
        for (_, placed) in self.on(row) {
            if !buffers.iter().any(|b| b.is_same(&placed.buffer)) {
                buffers.push(&placed.buffer);
            }
        }
        buffers.iter().map(|b| b.size()).sum()
    }

    /// Bytes that are locked in memory.
    pub fn n_locked(&self) -> usize {
        self.locks.n_locked()
    }

    /// What did not work but costs time only, in words for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
