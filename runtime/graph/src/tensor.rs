//! Tensors of a graph: handles, shapes, strides, and what they are for.

use llmrt_abi::{DType, types as abi};
use std::sync::Arc;

/// A tensor of one graph: its row in the graph's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tensor(pub u32);

/// Dims and elements per dim, innermost first; dims past the tensor's own are 1.
pub type Shape = [u64; 4];

/// Who gives a tensor its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Loaded once, never changes.
    Weight,
    /// Set before each run.
    Input,
    /// Kept between runs (KV caches).
    State,
    /// Computed by a node, or a view.
    Computed,
}

/// What a weight or state is for; plugins choose layouts by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum Role {
    /// Not given.
    #[default]
    Other = abi::ROLE_OTHER,
    /// Left operand of `mul_mat`.
    Matrix = abi::ROLE_MATRIX,
    /// Table of `get_rows`.
    Embedding = abi::ROLE_EMBEDDING,
    /// Norm weight.
    Norm = abi::ROLE_NORM,
    /// Added to rows.
    Bias = abi::ROLE_BIAS,
    /// Left operand of `mul_mat_id`.
    Experts = abi::ROLE_EXPERTS,
    /// K cache.
    KCache = abi::ROLE_K_CACHE,
    /// V cache.
    VCache = abi::ROLE_V_CACHE,
    /// Left operand of `mul_mat` whose x are mostly zeros.
    MatrixOfZeros = abi::ROLE_MATRIX_OF_ZEROS,
    /// Left operand of `mul_mat_sparse` or `mul_mat_t`, which read few of its rows for a token. Given when weights are placed.
    PickedRows = abi::ROLE_PICKED_ROWS,
}

/// A row of the tensor table.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorDef {
    /// For people and for finding weights; GGUF's name for weights.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Elements per dim, innermost first.
    pub ne: Shape,
    /// Bytes between elements (blocks, for dim 0) of each dim.
    pub nb: Shape,
    /// Who gives the bytes.
    pub kind: Kind,
    /// What it is for.
    pub role: Role,
    /// Whether the host reads it after the run.
    pub output: bool,
    /// For views: the tensor that owns the bytes, and the byte offset in it. Never a view of a view.
    pub view: Option<(Tensor, u64)>,
    /// Of a part of a weight that is cut by a list ([`crate::rows`]): its rows or columns of the whole, in any order.
    pub listed: Option<Arc<[u32]>>,
}

impl TensorDef {
    /// Dims without trailing ones; at least 1.
    pub fn n_dims(&self) -> usize {
        self.ne.iter().rposition(|&n| n != 1).map_or(1, |i| i + 1)
    }

    /// All elements.
    pub fn n_elems(&self) -> u64 {
        self.ne.iter().product()
    }

    /// Rows: elements over the innermost dim.
    pub fn n_rows(&self) -> u64 {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Bytes from the first to past the last element; 0 when empty. Of a view that fits its tensor, no more than that
    /// one's; else it saturates.
    pub fn n_bytes(&self) -> u64 {
        if self.ne.contains(&0) {
            return 0;
        }
        // Steps from the first to the last block (element) of a row; only plain types are ever spread out.
        let last_in_row = (self.ne[0] / self.dtype.block_elems() as u64).max(1) - 1;
        let steps = [last_in_row, self.ne[1] - 1, self.ne[2] - 1, self.ne[3] - 1];
        let to_last = steps.iter().zip(self.nb).map(|(n, nb)| n.saturating_mul(nb));
        to_last.fold(self.dtype.block_bytes() as u64, u64::saturating_add)
    }

    /// Whether elements follow each other without gaps, in order.
    pub fn is_contiguous(&self) -> bool {
        Some(self.nb) == contiguous_strides(self.dtype, self.ne)
    }

    /// Whether each row's elements follow each other without gaps.
    pub fn has_dense_rows(&self) -> bool {
        self.nb[0] == self.dtype.block_bytes() as u64
    }
}

/// Strides of a tensor without gaps; `None` if rows are not whole blocks or the size overflows (dims of 0 do not
/// excuse the others, so that no product of dims can overflow later).
pub fn contiguous_strides(dtype: DType, ne: Shape) -> Option<Shape> {
    ne.iter().try_fold(dtype.block_bytes() as u64, |size, &n| size.checked_mul(n.max(1)))?;
    let row = dtype.row_bytes(ne[0])?;
    let plane = row.checked_mul(ne[1])?;
    let cube = plane.checked_mul(ne[2])?;
    cube.checked_mul(ne[3])?;
    Some([dtype.block_bytes() as u64, row, plane, cube])
}

/// Fills a shape from its leading dims.
pub fn shape(dims: &[u64]) -> Shape {
    let mut ne = [1; 4];
    for (to, from) in ne.iter_mut().zip(dims) {
        *to = *from;
    }
    ne
}
