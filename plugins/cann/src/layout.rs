//! How weights are laid out on a card.
//!
//! Quantised ones: all values of the tensor first, then all scales. Q4_0: two values per byte, two's complement. Q8_0, Q5_0: a
//! byte per value; what is Q5_0 in the file needs more room then. Scales are F16, one per 32 values of a row. Values are row after
//! row as in the file, with scales [rows, cols / 32], or as a [cols][rows] matrix with scales [cols / 32][rows]; experts' scales
//! are [experts][cols / 32][rows], as their operator takes them.
//!
//! Formats with mins, or with parts of 16, have no product on the card: their numbers are kept as F16, each off by at most
//! 2⁻¹¹ of itself, followed by the file's bytes, from which rows are picked and which are read back. Experts of such
//! formats stay as they are in the file, because there are too many of them for F16.
//!
//! F16: as in the file, or as FRACTAL_NZ. All but the F16 numbers of quantised weights are exact, and all can be undone.

use crate::format;
use llmrt_plugin::abi::types::{LAYOUT_INVERTIBLE, ROLE_EMBEDDING, ROLE_EXPERTS, ROLE_MATRIX, TENSOR_WEIGHT};
use llmrt_plugin::{DType, Layout, TensorView};

/// Elements that share a scale.
pub const GROUP: usize = 32;

/// Values of 4 bits, row after row.
pub const INT4: u32 = 1;
/// Values of 8 bits, row after row.
pub const INT8: u32 = 2;
/// Numbers as F16, and the file's bytes.
pub const F16: u32 = 3;
/// F16 in blocks of 16 rows and 16 columns, blocks of a column of blocks first.
pub const NZ: u32 = 4;
/// Values of 4 bits, column after column.
pub const INT4_COLUMNS: u32 = 5;
/// Values of 8 bits, column after column.
pub const INT8_COLUMNS: u32 = 6;
/// Values of 4 bits row after row, scales of each expert column after column.
pub const INT4_EXPERTS: u32 = 7;

/// Rows and columns of a block of [`NZ`].
pub const NZ_BLOCK: usize = 16;

/// The most rows of a matrix that is stored by columns: the product takes no more, and parts of it would have gaps.
const MAX_COLUMN: usize = 65_504;

/// Layouts that are there to choose from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// F16 matrices as [`NZ`].
    pub nz: bool,
    /// Quantised matrices by columns.
    pub columns: bool,
}

/// The layout a weight gets at `seal`; `None` if it stays as it is. All that there are to choose from need the same room.
pub fn of_weight(t: &TensorView<'_>, choice: Choice) -> Option<Layout> {
    let is_matrix = matches!(t.role(), ROLE_MATRIX | ROLE_EXPERTS | ROLE_EMBEDDING);
    if !is_matrix || t.flags() & TENSOR_WEIGHT == 0 || !t.is_contiguous() {
        return None;
    }
    // Rows of embeddings are looked up, also where they are the output's matrix too.
    let is_one_matrix = t.role() == ROLE_MATRIX && t.ne()[2..] == [1, 1];
    let columns =
        choice.columns && is_one_matrix && t.ne()[1].is_multiple_of(GROUP) && t.ne()[1] <= MAX_COLUMN;
    let (id, name) = match t.dtype()? {
        DType::Q4_0 if t.role() == ROLE_EXPERTS => (INT4_EXPERTS, "int4 values, then scales by columns"),
        DType::Q4_0 if columns => (INT4_COLUMNS, "int4 values by columns, then scales"),
        DType::Q4_0 => (INT4, "int4 values, then scales"),
        DType::Q8_0 | DType::Q5_0 if columns => (INT8_COLUMNS, "int8 values by columns, then scales"),
        DType::Q8_0 | DType::Q5_0 => (INT8, "int8 values, then scales"),
        DType::F16 if choice.nz && is_one_matrix && goes_in_blocks(t) => (NZ, "FRACTAL_NZ"),
        dtype if format::of(dtype).is_some() && t.role() != ROLE_EXPERTS => {
            (F16, "F16 numbers, then as in the file")
        }
        _ => return None,
    };
    let stored_bytes = bytes_in(id, t);
    Some(Layout { id, flags: LAYOUT_INVERTIBLE, stored_bytes, row_granularity: t.n_rows() as u64, name })
}

/// Whole blocks, so that there is no padding; a 310P takes no others (`IsSupportNzNzNd` of matmul_util.cpp, ops-nn 9.1).
fn goes_in_blocks(t: &TensorView<'_>) -> bool {
    t.ne()[..2].iter().all(|n| *n > 0 && n.is_multiple_of(NZ_BLOCK))
}

/// Whether a layout is one of values and scales.
pub fn has_scales(id: u32) -> bool {
    matches!(id, INT4 | INT8 | INT4_COLUMNS | INT8_COLUMNS | INT4_EXPERTS)
}

/// Whether values are column after column.
pub fn is_by_columns(id: u32) -> bool {
    matches!(id, INT4_COLUMNS | INT8_COLUMNS)
}

/// Whether two values share a byte.
pub fn is_int4(id: u32) -> bool {
    matches!(id, INT4 | INT4_COLUMNS | INT4_EXPERTS)
}

/// Bytes of a tensor in the layout it has.
pub fn stored_bytes(t: &TensorView<'_>) -> u64 {
    bytes_in(t.layout_id(), t)
}

/// Where the bytes of the file are kept in the layout a tensor has; `None` if they are not.
pub fn canonical_at(t: &TensorView<'_>) -> Option<u64> {
    match t.layout_id() {
        0 => Some(0),
        F16 => Some(2 * t.n_elements() as u64),
        _ => None,
    }
}

/// Offset of the scales.
pub fn scales_at(id: u32, n_elements: usize) -> u64 {
    if is_int4(id) { n_elements as u64 / 2 } else { n_elements as u64 }
}

fn bytes_in(id: u32, t: &TensorView<'_>) -> u64 {
    let n = t.n_elements();
    match id {
        F16 => 2 * n as u64 + t.nbytes(),
        id if has_scales(id) => scales_at(id, n) + (n / GROUP * 2) as u64,
        _ => t.nbytes(),
    }
}
