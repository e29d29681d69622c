//! Products with many columns, in tiles: which kernel, and what it needs before. Experts' columns are sorted on the card,
//! so that a tile has one expert's and its weights are read once.

use super::by_cublas;
use super::check::is_number;
use super::kept::Form;
use super::mul_mat::{name_of, name_of_weight, packed_bytes, quantise};
use super::wgmma::{self, Operands, Variant};
use super::{pieces, source};
use crate::call::{Args, Call, address};
use crate::gpu::Gpu;
use llmrt_plugin::{DType, NodeView, Result, TensorView};

/// Rows and columns of the tiles of packed weights and of F32.
const TILE: usize = 64;
/// Rows and columns of the tiles of halves: as large as pays, and where there are few.
const WIDE: (usize, usize) = (128, 64);
pub const NARROW: (usize, usize) = (32, 32);

/// The launches of a node with many columns; with `ids`, of chosen experts.
pub fn many(call: &mut Call<'_>, node: &NodeView<'_>, ids: Option<TensorView<'_>>) -> Result<()> {
    let (w, x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    if ids.is_none()
        && let Some(by) = by_warpgroups(call, &w, &y)?
    {
        let x = halve(call, DType::F16, &x)?;
        return wgmma::many_packed(call, node, by, x);
    }
    // x comes first, so that it may be kept.
    let is_for_halves = multiplies_halves(call.gpu.identity.capability, &w) && is_aligned(&w)?;
    let (halves, units) =
        if is_for_halves { halve(call, w.dtype().unwrap_or(DType::F16), &x)? } else { (0, 0) };
    let packed = if is_number(&w) { 0 } else { quantise(call, &x)? };
    let columns = Columns::new(call, &w, &y, ids)?;
    let args = Args::default().tensor(&w)?.tensor(&x)?.tensor(&y)?.optional(ids)?;
    let rows = |n| y.ne()[0].div_ceil(n);
    let name = w.dtype().and_then(name_of).unwrap_or_default();
    if is_for_halves {
        // What cuBLASLt does needs no trial.
        let is_ours = ids.is_none() && !by_cublas::is_there_for(call.gpu, node)?;
        let by = wgmma::choose(&w, &y, call.gpu).filter(|_| is_ours);
        if let Some(by) = by
            && call.modules.trials.passed(call.gpu, call.modules, by)?
        {
            let (ne, nb, columns) = (w.ne(), w.nb(), [columns.n, columns.batches]);
            let operands = Operands { by, w: address(&w)?, ne, nb, x: halves, columns };
            let launch = operands.launch(call.gpu, call.modules, args.address(halves), [units, 0])?;
            call.launches.extend(launch);
            return Ok(());
        }
        let (size, tile) = match (rows(WIDE.0), columns.grid(WIDE.1)) {
            (m, [n, batches]) if columns.together > NARROW.1 && m * n * batches >= n_sms(call) => {
                ("wide", WIDE)
            }
            _ => ("narrow", NARROW),
        };
        let [n, batches] = columns.grid(tile.1);
        let args = columns.put(args.address(halves)).address(units);
        let one = if name == "bf16" && call.gpu.bf16_parts == 1 { "_one" } else { "" };
        let kernel = format!("mul_mat_{name}{one}_{size}");
        call.launch(("mul_mat_half", &kernel), [rows(tile.0), n, batches], 128, args)?;
        return by_cublas::take_over(call, node, halves, units);
    }
    let ([n, batches], grid) = (columns.grid(TILE), rows(TILE));
    let args = columns.put(args.address(packed));
    if is_number(&w) {
        return call.launch(("mul_mat", "mul_mat_float_tile"), [grid, n, batches], 256, args);
    }
    let name = name_of_weight(&w).unwrap_or_default();
    call.launch(("mul_mat_tile", &format!("mul_mat_{name}_tile")), [grid, n, batches], 128, args)
}

/// The kernel for packed weights that become F16, and how many rows at a time, if the device has it and it is right there.
fn by_warpgroups(
    call: &Call<'_>,
    w: &TensorView<'_>,
    y: &TensorView<'_>,
) -> Result<Option<(&'static Variant, usize)>> {
    let chosen = wgmma::choose_packed(w, y, &call.gpu.identity).filter(|_| !is_number(w));
    match chosen {
        Some(by) if call.modules.trials.passed(call.gpu, call.modules, by.0)? => Ok(Some(by)),
        _ => Ok(None),
    }
}

/// Whether a node with packed weights takes x in 8 bits, whatever its columns.
pub fn takes_packed(call: &Call<'_>, node: &NodeView<'_>) -> Result<bool> {
    let w = source(node, 0)?;
    Ok(!is_number(&w) && (node.src(2).is_some() || by_warpgroups(call, &w, &node.dst())?.is_none()))
}

/// Bytes of scratch memory that a node with many columns takes at most: the address of its weights decides the kernel.
pub fn workspace(node: &NodeView<'_>, gpu: &Gpu) -> Result<usize> {
    let device = &gpu.identity;
    let (w, x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    let sorted = match node.src(2) {
        Some(_) => pieces(&sorted_bytes(y.ne()[1] * y.ne()[2], w.ne()[2])),
        None => 0,
    };
    let is_bf16 = w.dtype() == Some(DType::BF16);
    let prepared = if multiplies_halves(device.capability, &w) {
        pieces(&halves_bytes(parts(gpu, is_bf16), &x))
    } else if is_number(&w) {
        0
    } else {
        let by_warpgroups = match wgmma::choose_packed(&w, &y, device) {
            Some((_, rows)) if node.src(2).is_none() => {
                pieces(&halves_bytes(1, &x)) + pieces(&wgmma::unpacked_bytes(&w, rows))
            }
            _ => 0,
        };
        pieces(&[packed_bytes(&x)]).max(by_warpgroups)
    };
    Ok(sorted + prepared)
}

/// Of `order` and `starts` of [`Columns`].
fn sorted_bytes(n: usize, n_experts: usize) -> [usize; 2] {
    [n * 4, (n_experts + 2) * 4]
}

/// Halves that a number of x becomes: `Halve` of kernels/mul_mat_half.cu.
pub fn parts(gpu: &Gpu, is_bf16: bool) -> usize {
    if is_bf16 { gpu.bf16_parts } else { 1 }
}

/// Of x in so many halves of each number, and of their units.
fn halves_bytes(parts: usize, x: &TensorView<'_>) -> [usize; 2] {
    [x.n_elements() * 2 * parts, x.n_rows() * 4]
}

fn n_sms(call: &Call<'_>) -> usize {
    call.gpu.identity.n_sms as usize
}

/// Columns of y, in memory order or sorted by expert.
struct Columns {
    /// Those that may be in one tile, or about as many.
    together: usize,
    n: usize,
    batches: usize,
    /// `order` and `starts` of kernels/tile.cuh, 0 without experts.
    sorted: (u64, u64),
    n_experts: usize,
}

impl Columns {
    fn new(
        call: &mut Call<'_>,
        w: &TensorView<'_>,
        y: &TensorView<'_>,
        ids: Option<TensorView<'_>>,
    ) -> Result<Columns> {
        let [_, n, n2, n3] = y.ne();
        let Some(ids) = ids else {
            return Ok(Columns { together: n, n, batches: n2 * n3, sorted: (0, 0), n_experts: 0 });
        };
        let (n, n_experts) = (n * n2, w.ne()[2]);
        let [order, starts] = sorted_bytes(n, n_experts);
        let (order, starts) = (call.scratch(order)?, call.scratch(starts)?);
        let args = Args::default().tensor(&ids)?.address(order).address(starts).count(n_experts);
        call.launch(("mul_mat", "sort_columns"), [n_experts + 1, 1, 1], 256, args)?;
        let together = n.div_ceil(n_experts);
        Ok(Columns { together, n, batches: 1, sorted: (order, starts), n_experts })
    }

    /// Tiles of so many columns, and batches. Each expert has tiles of its own, and so have columns of none.
    fn grid(&self, columns: usize) -> [usize; 2] {
        let n_tiles = self.n.div_ceil(columns);
        match self.sorted {
            (0, 0) => [n_tiles, self.batches],
            _ => [self.n.min(n_tiles + self.n_experts), 1],
        }
    }

    fn put(&self, args: Args) -> Args {
        args.address(self.sorted.0).address(self.sorted.1)
    }
}

/// Whether dtype and rows let a card multiply weights as halves, if they begin where 16 bytes can be read at once.
pub fn multiplies_halves(capability: (i32, i32), w: &TensorView<'_>) -> bool {
    let known = match w.dtype() {
        Some(DType::F16) => true,
        Some(DType::BF16) => capability >= (8, 0),
        _ => false,
    };
    known && in_sixteens(w)
}

/// Whether rows of halves, or of a cache's heads, are so far apart that 16 bytes can be read at once, if the first can.
pub fn in_sixteens(t: &TensorView<'_>) -> bool {
    t.nb()[0] == 2 && in_pieces(t)
}

/// Whether that is so of rows of floats.
pub fn in_pieces(t: &TensorView<'_>) -> bool {
    let (ne, nb) = (t.ne(), t.nb());
    let even = (1..4).all(|d| ne[d] == 1 || nb[d].is_multiple_of(16));
    is_number(t)
        && nb[0] == t.dtype().map_or(0, DType::block_bytes)
        && (ne[0] * nb[0]).is_multiple_of(16)
        && even
}

/// Whether a tensor begins where 16 bytes can be read at once.
pub fn is_aligned(t: &TensorView<'_>) -> Result<bool> {
    Ok(address(t)?.is_multiple_of(16))
}

/// x as halves of a dtype: their address, and that of their units. Nothing is launched if they are still kept.
fn halve(call: &mut Call<'_>, dtype: DType, x: &TensorView<'_>) -> Result<(u64, u64)> {
    let is_f16 = dtype == DType::F16;
    let kernel = if is_f16 { "halve_f16" } else { "halve_bf16" };
    let form = Form::Halves(dtype);
    let parts = parts(call.gpu, !is_f16);
    let sizes = halves_bytes(parts, x);
    let units_of = |halves| halves + pieces(&sizes[..1]) as u64;
    if let Some(halves) = call.kept(x, form)? {
        return Ok((halves, units_of(halves)));
    }
    let halves = call.keep(x, form, pieces(&sizes), false)?;
    let units = units_of(halves);
    let args = Args::default().tensor(x)?.address(halves).address(units).count(parts);
    let threads = if is_f16 { 256 } else { 128 };
    call.launch(("mul_mat_half", kernel), [x.n_rows(), 1, 1], threads, args)?;
    Ok((halves, units))
}
