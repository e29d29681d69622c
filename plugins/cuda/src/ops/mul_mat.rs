//! y = w x, and with the matrices of chosen experts: kernels/mul_mat.cu, for many columns kernels/mul_mat_tile.cu,
//! kernels/mul_mat_half.cu and kernels/mul_mat_wgmma.cu.
//!
//! Packed weights are multiplied as they are, with x rounded to 8 bits as the CPU does: up to 4 columns by dp4a, more by tensor
//! cores, many on sm_90 as F16. Floats are multiplied as F32; for more columns F16 and BF16 weights by tensor cores or
//! cuBLASLt, with x as halves.

use super::check::{self, Answer, ensure, numbers};
use super::tiles::{self, NARROW, many};
use super::{Form, by_cublas, kept, pieces, source};
use crate::call::{Args, Call};
use crate::gpu::Gpu;
use crate::layout;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub const MUL_MAT: Form = (supports, compute);
pub const MUL_MAT_ID: Form = (supports_id, compute_id);

/// Columns, at most, of one matrix that a warp multiplies in one read of its row.
pub const FEW: usize = 8;
/// Columns, at most, of packed weights that are multiplied as [`FEW`] at a time rather than in tiles, whose blocks are too few
/// for a card then.
const FEW_PACKED: usize = 48;
/// Warps of a block of the kernels for few columns.
pub const WARPS: usize = 4;
/// Blocks for each multiprocessor below which a warp takes one row of a single column.
const SPARE: usize = 4;
/// Bytes of 32 numbers of x in 8 bits.
const PACKED: usize = 48;

/// Kernels' name for a dtype of weights; `None`: they have no kernel.
pub fn name_of(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::Q4_0 => "q4_0",
        DType::Q4_1 => "q4_1",
        DType::Q5_0 => "q5_0",
        DType::Q5_1 => "q5_1",
        DType::Q8_0 => "q8_0",
        DType::Q2_K => "q2_k",
        DType::Q3_K => "q3_k",
        DType::Q4_K => "q4_k",
        DType::Q5_K => "q5_k",
        DType::Q6_K => "q6_k",
        DType::IQ4_NL => "iq4_nl",
        DType::IQ4_XS => "iq4_xs",
        DType::MXFP4 => "mxfp4",
        _ => return None,
    })
}

/// As above, in the layout it has.
pub fn name_of_weight(w: &TensorView<'_>) -> Option<String> {
    let name = name_of(w.dtype()?)?;
    Some(if w.layout_id() == layout::EIGHTS { format!("{name}_eights") } else { name.into() })
}

/// Source `i`: weights of a dtype that kernels decode; floats at any strides, packed ones in dense rows.
pub fn weights<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let w = check::given(node, i)?;
    ensure(w.dtype().and_then(name_of).is_some(), Reason::Type)?;
    if !check::is_number(&w) {
        check::dense_rows(&w)?;
    }
    Ok(w)
}

/// As above, for products: kernels read 16 bytes at once of those whose blocks are multiples of that.
fn factors<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let w = weights(node, i)?;
    if matches!(w.dtype(), Some(DType::Q4_K | DType::Q5_K)) || w.layout_id() != 0 {
        let even = (1..4).all(|d| w.ne()[d] == 1 || w.nb()[d].is_multiple_of(16));
        ensure(even && w.offset().is_multiple_of(16), Reason::Stride)?;
    }
    Ok(w)
}

fn supports(node: &NodeView<'_>) -> Answer {
    let (w, x) = (factors(node, 0)?.ne(), numbers(node, 1)?.ne());
    ensure(w[0] > 0 && w[0] == x[0] && w[2] > 0 && w[3] > 0, Reason::Shape)?;
    ensure(x[2].is_multiple_of(w[2]) && x[3].is_multiple_of(w[3]), Reason::Shape)?;
    check::result(node, Some(DType::F32), [w[1], x[1], x[2], x[3]])?;
    in_a_grid(&node.dst(), has_few(node))
}

/// Whether a product has the kernels for few columns.
pub fn has_few(node: &NodeView<'_>) -> bool {
    let (ne, w) = (node.dst().ne(), node.src(0));
    match node.op() {
        Some(Op::MulMatId) => ne[2] <= FEW,
        _ => ne[1] <= if w.is_some_and(|w| !check::is_number(&w)) { FEW_PACKED } else { FEW },
    }
}

/// Batches and columns are dims of a grid.
fn in_a_grid(y: &TensorView<'_>, is_few: bool) -> Answer {
    let ne = y.ne();
    let n = match is_few {
        // A column each where weights are scattered.
        true if ne[1] <= FEW => ne[1] * ne[2] * ne[3],
        true => ne[2] * ne[3],
        false => ne[1].div_ceil(NARROW.1).max(ne[2] * ne[3]),
    };
    ensure(n <= 65535, Reason::Shape)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    match has_few(node) {
        true => few(call, node, at_once(node.dst().ne()[1])),
        false => many(call, node, None),
    }
}

/// Columns that a warp has room for: all `n` of a batch, which share one matrix, or [`FEW`] of them.
pub fn at_once(n: usize) -> usize {
    n.next_power_of_two().min(FEW)
}

/// Second and third dim of a grid over y: batches, and groups of columns of one; or a column each where a warp takes one.
pub fn blocks([_, n, n2, n3]: [usize; 4], at_once: usize) -> [usize; 2] {
    if at_once == 1 { [n * n2 * n3, 1] } else { [n2 * n3, n.div_ceil(at_once)] }
}

/// `struct Product` of the kernels, with x in 8 bits at an address.
pub fn product(node: &NodeView<'_>, packed: u64) -> Result<Args> {
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&source(node, 1)?)?.tensor(&node.dst())?;
    Ok(args.optional(node.src(2))?.address(packed))
}

/// A launch over rows of w and batches of y, with room for `at_once` columns in one warp.
fn few(call: &mut Call<'_>, node: &NodeView<'_>, at_once: usize) -> Result<()> {
    let (w, x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    let packed = if check::is_number(&w) { 0 } else { quantise(call, &x)? };
    let (name, is_scattered) = (name_of_few(&w)?, is_scattered(&w)?);
    let args = product(node, packed)?;
    let [batches, groups] = blocks(y.ne(), at_once);
    let n_blocks = |rows: usize| y.ne()[0].div_ceil(rows * WARPS);
    let is_small = n_blocks(rows_of_a_warp(1)) * batches < SPARE * call.gpu.identity.n_sms as usize;
    let (kernel, rows) = match at_once {
        _ if is_scattered => (format!("mul_mat_{name}_{at_once}"), 1),
        1 if is_small => (format!("mul_mat_{name}_row"), 1),
        _ => (format!("mul_mat_{name}_{at_once}"), rows_of_a_warp(at_once)),
    };
    let family = family_of_few(&w, at_once).unwrap_or("mul_mat");
    call.launch((family, &kernel), [n_blocks(rows), batches, groups], WARPS * 32, args)
}

/// The family of the kernels for so many columns of packed weights, products and gated ones, if they have one of their own.
pub fn family_of_few(w: &TensorView<'_>, at_once: usize) -> Option<&'static str> {
    (at_once == FEW && !check::is_number(w)).then_some("mul_mat_eight")
}

/// Rows that a warp takes at once: `ROWS` of kernels/few.cuh.
pub fn rows_of_a_warp(at_once: usize) -> usize {
    if at_once <= 2 { 2 } else { 4 }
}

/// Whether weights are floats of which 16 bytes cannot be read at once.
pub fn is_scattered(w: &TensorView<'_>) -> Result<bool> {
    Ok(check::is_number(w) && !(tiles::in_pieces(w) && tiles::is_aligned(w)?))
}

/// Kernels' name for weights times few columns.
pub fn name_of_few(w: &TensorView<'_>) -> Result<String> {
    let name = name_of_weight(w).unwrap_or_default();
    Ok(if is_scattered(w)? { format!("{name}_scattered") } else { name })
}

/// Bytes of scratch memory that a supported node takes at most: for few columns those of x in 8 bits.
pub fn workspace(node: &NodeView<'_>, gpu: &Gpu) -> Result<usize> {
    match source(node, 0)? {
        _ if !has_few(node) => Ok(tiles::workspace(node, gpu)? + by_cublas::workspace(node, gpu)?),
        w if check::is_number(&w) => Ok(0),
        _ => Ok(pieces(&[packed_bytes(&source(node, 1)?)])),
    }
}

/// Of x in 8 bits.
pub fn packed_bytes(x: &TensorView<'_>) -> usize {
    x.n_elements() / 32 * PACKED
}

/// x in 8 bits: its address. Nothing is launched if it is still kept.
pub fn quantise(call: &mut Call<'_>, x: &TensorView<'_>) -> Result<u64> {
    if let Some(packed) = call.kept(x, kept::Form::Packed)? {
        return Ok(packed);
    }
    let packed = call.keep(x, kept::Form::Packed, packed_bytes(x), false)?;
    let args = Args::default().tensor(x)?.address(packed);
    call.launch(("mul_mat", "quantise"), super::blocks(x.n_elements() / 4, 256), 256, args)?;
    Ok(packed)
}

fn supports_id(node: &NodeView<'_>) -> Answer {
    let (w, x) = (factors(node, 0)?.ne(), numbers(node, 1)?.ne());
    let ids = check::of(node, 2, DType::I32)?.ne();
    ensure(w[0] > 0 && w[0] == x[0] && w[3] == 1 && w[2] > 0 && ids[2..] == [1, 1], Reason::Shape)?;
    ensure(x[2..] == [ids[1], 1] && x[1] > 0 && ids[0].is_multiple_of(x[1]), Reason::Shape)?;
    ensure(ids[0].saturating_mul(ids[1]) <= 65535, Reason::Shape)?;
    check::result(node, Some(DType::F32), [w[1], ids[0], ids[1], 1])
}

fn compute_id(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    match node.src(2) {
        Some(ids) if !has_few(node) => many(call, node, Some(ids)),
        _ => few(call, node, 1),
    }
}
