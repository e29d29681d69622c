//! Products with many columns on chips of compute capability 9.0: kernels/mul_mat_wgmma.cu, which takes weights and x, as
//! halves, by tensor maps. Packed weights become F16 for that, some rows after others.

use super::source;
use crate::call::{Args, Call, Kernel, Launch, address, dense_strides};
use crate::driver::{Identity, cu};
use crate::gpu::Gpu;
use crate::layout::kernel_type;
use crate::modules::Modules;
use crate::sys::*;
use llmrt_plugin::{DType, NodeView, Result, TensorView};
use std::ffi::c_void;

/// Rows of a tile of y, and numbers of a row of w and x that are in shared memory together.
const ROWS: usize = 128;
const DEPTH: usize = 64;
/// Warps that multiply, and one that has tiles fetched.
const THREADS: usize = (8 + 1) * 32;
/// Columns from which such tiles pay, and from which unpacking weights first does.
const LEAST: usize = 65;
const LEAST_PACKED: usize = 49;
/// Bytes of packed weights that are F16 at a time, at most, and of a card's memory: they shall stay in its cache.
const UNPACKED: usize = 32 << 20;
const OF_MEMORY: usize = 256;

/// A kernel of the family.
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Of the weights.
    pub dtype: DType,
    /// Halves of each number of x.
    pub parts: usize,
    /// Of a tile of y.
    columns: usize,
    /// Tiles of w and x that shared memory has room for.
    stages: usize,
}

const F16: Variant =
    Variant { name: "mul_mat_f16_wgmma", dtype: DType::F16, parts: 1, columns: 128, stages: 3 };
const BF16: Variant =
    Variant { name: "mul_mat_bf16_wgmma", dtype: DType::BF16, parts: 2, columns: 128, stages: 4 };
/// With x rounded to one BF16.
const BF16_ONE: Variant = Variant { name: "mul_mat_bf16_one_wgmma", dtype: DType::BF16, ..F16 };

/// Of each type by width: wide ones read less of shared memory for a product, where there are tiles for all multiprocessors;
/// narrow ones have more tiles, and more stages in flight.
const OF_F16: &[Variant] = &[
    Variant { name: "mul_mat_f16_wgmma_wide", columns: 256, stages: 4, ..F16 },
    F16,
    Variant { name: "mul_mat_f16_wgmma_narrow", columns: 64, stages: 8, ..F16 },
];
const OF_BF16: &[Variant] =
    &[BF16, Variant { name: "mul_mat_bf16_wgmma_narrow", columns: 64, stages: 6, ..BF16 }];
const OF_BF16_ONE: &[Variant] = &[
    Variant { name: "mul_mat_bf16_one_wgmma_wide", columns: 256, stages: 4, ..BF16_ONE },
    BF16_ONE,
    Variant { name: "mul_mat_bf16_one_wgmma_narrow", columns: 64, stages: 8, ..BF16_ONE },
];

/// The kernel for a product without experts, if it is one for this family: weights that a tensor map can describe, which are
/// F16 or BF16 and begin where 16 bytes can be read at once; at least half as many tiles as multiprocessors.
pub fn choose(w: &TensorView<'_>, y: &TensorView<'_>, gpu: &Gpu) -> Option<&'static Variant> {
    let of = match w.dtype()? {
        DType::F16 => OF_F16,
        DType::BF16 if gpu.bf16_parts == 1 => OF_BF16_ONE,
        DType::BF16 => OF_BF16,
        _ => return None,
    };
    let [m, n, n2, n3] = y.ne();
    (n >= LEAST && strides(w.ne(), w.nb()).is_some() && is_small(w, y))
        .then(|| variant(of, [m, n, n2 * n3], &gpu.identity, gpu.identity.n_sms as usize / 2))
        .flatten()
}

/// The same for packed weights of one matrix, with rows that are F16 at a time; as long as `w` is packed, `x` has as many
/// numbers in a row as tiles require.
pub fn choose_packed(
    w: &TensorView<'_>,
    y: &TensorView<'_>,
    device: &Identity,
) -> Option<(&'static Variant, usize)> {
    let ([k, m, w2, w3], [_, n, n2, n3]) = (w.ne(), y.ne());
    let rows = rows_at_once(k, device).min(m);
    let fits = n >= LEAST_PACKED && w2 * w3 == 1 && is_small(w, y);
    let by = fits.then(|| variant(OF_F16, [rows, n, n2 * n3], device, 1)).flatten()?;
    Some((by, rows))
}

/// Rows of packed weights that are F16 at a time: whole tiles of them, one at least.
fn rows_at_once(k: usize, device: &Identity) -> usize {
    let bytes = UNPACKED.min(device.memory as usize / OF_MEMORY);
    (bytes / (2 * k)).max(ROWS) / ROWS * ROWS
}

/// Bytes of scratch memory for packed weights as F16, and for what their rows are to be multiplied by.
pub fn unpacked_bytes(w: &TensorView<'_>, rows: usize) -> [usize; 2] {
    [rows * w.ne()[0] * 2, rows * 4]
}

/// Whether places in tiles are numbers of 32 bits.
fn is_small(w: &TensorView<'_>, y: &TensorView<'_>) -> bool {
    w.ne().into_iter().chain(y.ne()).all(|n| i32::try_from(n).is_ok())
}

/// The widest of the kernels that has a tile for each multiprocessor, or the narrowest, for so many rows, columns and batches of
/// y, if a device has them and there are `least` tiles.
fn variant(
    of: &'static [Variant],
    [rows, columns, batches]: [usize; 3],
    device: &Identity,
    least: usize,
) -> Option<&'static Variant> {
    let n_tiles = |by: &Variant| rows.div_ceil(ROWS) * columns.div_ceil(by.columns) * batches;
    let fills = |by: &&Variant| columns > by.columns / 2 && n_tiles(by) >= device.n_sms as usize;
    let by = of.iter().find(fills).or(of.last())?;
    (device.capability == (9, 0) && batches <= 65535 && n_tiles(by) >= least).then_some(by)
}

/// Strides of dims 1 to 3 as a map needs them: each a multiple of the one before that leaves room for its elements, and
/// of 16, below 2^40. Where there is one element its stride does not matter.
fn strides(ne: [usize; 4], nb: [usize; 4]) -> Option<[u64; 3]> {
    let (mut inner, mut found) = (nb[0], [0; 3]);
    for d in 1..4 {
        let stride = if ne[d] == 1 { (inner * ne[d - 1]).next_multiple_of(16) } else { nb[d] };
        let good = stride.is_multiple_of(inner) && stride >= inner * ne[d - 1] && stride.is_multiple_of(16);
        (found[d - 1], inner) = (stride as u64, stride);
        if !good || stride >= 1 << 40 {
            return None;
        }
    }
    Some(found)
}

/// What is multiplied.
pub struct Operands {
    /// By which kernel.
    pub by: &'static Variant,
    /// Where the weights are.
    pub w: u64,
    /// Their dims, and bytes per dim.
    pub ne: [usize; 4],
    /// As above.
    pub nb: [usize; 4],
    /// Where x is as halves, without gaps.
    pub x: u64,
    /// Columns of a batch, and batches.
    pub columns: [usize; 2],
}

impl Operands {
    /// The kernel, and bytes of shared memory of its tiles, and of what it may skip to begin evenly.
    fn kernel(&self) -> Kernel<'static> {
        let tiles = self.by.stages * (ROWS + self.by.parts * self.by.columns) * DEPTH * 2;
        Kernel { family: "mul_mat_wgmma", name: self.by.name, block: THREADS, shared: tiles + 1024 }
    }

    /// The launch; `product` and `units`, of columns and of rows, are the rest of the kernel's argument.
    pub fn launch(
        &self,
        gpu: &Gpu,
        modules: &Modules,
        product: Args,
        units: [u64; 2],
    ) -> Result<Option<Launch>> {
        let (k, parts, [n, batches]) = (self.ne[0], self.by.parts, self.columns);
        let wide = |n: usize| n as u64;
        let row = wide(k * 2);
        let w_strides = strides(self.ne, self.nb).unwrap_or_default();
        let w = self.map(gpu, self.w, self.ne.map(wide), w_strides, [DEPTH, ROWS, 1, 1])?;
        let x_dims = [k, parts, n, batches].map(wide);
        let x_strides = [row, row * wide(parts), row * wide(parts * n)];
        let x = self.map(gpu, self.x, x_dims, x_strides, [DEPTH, 1, self.by.columns, 1])?;
        let grid = [self.ne[1].div_ceil(ROWS), n.div_ceil(self.by.columns), batches];
        let args = Args::default().map(&w).map(&x).then(product).address(units[0]).address(units[1]);
        Launch::new(gpu, modules, &self.kernel(), grid, args)
    }

    /// Tiles of so many numbers of a tensor, zeros where it has none, in rows of 128 bytes that are swizzled.
    fn map(&self, gpu: &Gpu, at: u64, ne: [u64; 4], nb: [u64; 3], tile: [usize; 4]) -> Result<CUtensorMap> {
        let dtype = match self.by.dtype {
            DType::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            _ => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let (mut map, tile, steps) = (CUtensorMap { opaque: [0; 16] }, tile.map(|n| n as u32), [1; 4]);
        let (at, ne, nb) = (at as *mut c_void, ne.as_ptr(), nb.as_ptr());
        // SAFETY: four dims, tiles' dims and steps, and three strides, read during the call; the output is ours. The address is
        // not followed.
        unsafe {
            cu!(
                gpu.driver,
                cuTensorMapEncodeTiled(
                    &mut map,
                    dtype,
                    4,
                    at,
                    ne,
                    nb,
                    tile.as_ptr(),
                    steps.as_ptr(),
                    CU_TENSOR_MAP_INTERLEAVE_NONE,
                    CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
                )
            )?;
        }
        Ok(map)
    }
}

/// The launches of a product with packed weights, `rows` of which are F16 at a time; `x` as F16, and its units.
pub fn many_packed(
    call: &mut Call<'_>,
    node: &NodeView<'_>,
    (by, rows): (&'static Variant, usize),
    (x, units): (u64, u64),
) -> Result<()> {
    let (w, of_x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    let ([k, m, ..], [_, n, n2, n3]) = (w.ne(), y.ne());
    let (w_at, y_at, [halves, row_units]) = (address(&w)?, address(&y)?, unpacked_bytes(&w, rows));
    let (halves, row_units) = (call.scratch(halves)?, call.scratch(row_units)?);
    for first in (0..m).step_by(rows) {
        let here = rows.min(m - first);
        let part = (w_at + (first * w.nb()[1]) as u64, [k, here, 1, 1]);
        let args = Args::default()
            .fields(part.0, part.1, w.nb(), kernel_type(&w))
            .address(halves)
            .address(row_units);
        // A thread per group of a row, in blocks of 128.
        let rows = 128 / (k / 32).next_multiple_of(32).min(128);
        call.launch(("mul_mat_wgmma", "halve_packed"), [here.div_ceil(rows), 1, 1], 128, args)?;
        let ne = [k, here, 1, 1];
        let args = Args::default().dense(halves, ne, DType::F16).tensor(&of_x)?;
        let part = y_at + (first * y.nb()[0]) as u64;
        let args = args.fields(part, [here, n, n2, n3], y.nb(), y.dtype_id()).optional(None)?.address(x);
        let nb = dense_strides(ne, DType::F16);
        let operands = Operands { by, w: halves, ne, nb, x, columns: [n, n2 * n3] };
        let launch = operands.launch(call.gpu, call.modules, args, [units, row_units])?;
        call.launches.extend(launch);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_those_of_maps_or_there_are_none() {
        let check = |ne, nb, expected| assert_eq!(strides(ne, nb), expected, "{ne:?} {nb:?}");
        check([8, 5, 1, 1], [2, 16, 80, 80], Some([16, 80, 80]));
        check([8, 5, 3, 2], [2, 16, 80, 240], Some([16, 80, 240]));
        check([64, 5, 3, 1], [2, 160, 800, 7], Some([160, 800, 2400]));
        check([64, 5, 3, 1], [2, 384, 128, 1920], None);
        check([64, 5, 1, 1], [2, 136, 680, 680], None);
        check([64, 5, 3, 1], [2, 64, 640, 7], None);
    }
}
