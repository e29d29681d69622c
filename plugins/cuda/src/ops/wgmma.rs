//! Products with many columns on chips of compute capability 9.0: kernels/mul_mat_wgmma.cu, which takes weights and x, as
//! halves, by tensor maps.

use crate::call::{Args, Kernel, Launch};
use crate::driver::{Identity, cu};
use crate::gpu::Gpu;
use crate::modules::Modules;
use crate::sys::*;
use llmrt_plugin::{DType, Result, TensorView};
use std::ffi::c_void;

/// Rows of a tile of y, and numbers of a row of w and x that are in shared memory together.
const ROWS: usize = 128;
const DEPTH: usize = 64;
/// Warps that multiply, and one that has tiles fetched.
const THREADS: usize = (8 + 1) * 32;
/// Columns from which such tiles are thought to pay. Not measured.
const LEAST: usize = 65;

/// A kernel of the family.
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Of the weights.
    pub dtype: DType,
    /// Of a tile of y.
    columns: usize,
    /// Tiles of w and x that shared memory has room for.
    stages: usize,
}

const F16: Variant = Variant { name: "mul_mat_f16_wgmma", dtype: DType::F16, columns: 128, stages: 3 };
/// Reads less of shared memory for a product; where there are tiles for all multiprocessors.
const F16_WIDE: Variant = Variant { name: "mul_mat_f16_wgmma_wide", columns: 256, stages: 4, ..F16 };
const BF16: Variant = Variant { name: "mul_mat_bf16_wgmma", dtype: DType::BF16, columns: 128, stages: 4 };

/// The kernel for a product without experts, if it is one for this family: weights that a tensor map can describe, which are
/// F16 or BF16 and begin where 16 bytes can be read at once; at least half as many tiles as multiprocessors.
pub fn choose(w: &TensorView<'_>, y: &TensorView<'_>, device: &Identity) -> Option<&'static Variant> {
    let ([m, n, n2, n3], batches) = (y.ne(), y.ne()[2] * y.ne()[3]);
    let small = w.ne().into_iter().chain([n, n2, n3]).all(|n| i32::try_from(n).is_ok());
    let fits = device.capability == (9, 0) && n >= LEAST && batches <= 65535 && small;
    let fills = |tile: &Variant, least: usize| {
        m.div_ceil(ROWS) * n.div_ceil(tile.columns) * batches >= least.div_ceil(2)
    };
    let n_sms = device.n_sms as usize;
    let variant = match w.dtype()? {
        DType::F16 if fills(&F16_WIDE, 2 * n_sms) => &F16_WIDE,
        DType::F16 => &F16,
        DType::BF16 => &BF16,
        _ => return None,
    };
    (fits && fills(variant, n_sms) && strides(w.ne(), w.nb()).is_some()).then_some(variant)
}

/// Strides of dims 1 to 3 as a map wants them: each a multiple of the one before that leaves room for its elements, and of 16,
/// below 2^40. Where there is one element its stride does not matter.
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
    /// Halves of each number of x.
    fn parts(&self) -> usize {
        if self.by.dtype == DType::F16 { 1 } else { 2 }
    }

    /// The kernel, and bytes of shared memory of its tiles, and of what it may skip to begin evenly.
    fn kernel(&self) -> Kernel<'static> {
        let tiles = self.by.stages * (ROWS + self.parts() * self.by.columns) * DEPTH * 2;
        Kernel { family: "mul_mat_wgmma", name: self.by.name, block: THREADS, shared: tiles + 1024 }
    }

    /// The launch; `product` and `units` are the rest of the kernel's argument.
    pub fn launch(&self, gpu: &Gpu, modules: &Modules, product: Args, units: u64) -> Result<Option<Launch>> {
        let (k, parts, [n, batches]) = (self.ne[0], self.parts(), self.columns);
        let wide = |n: usize| n as u64;
        let row = wide(k * 2);
        let w_strides = strides(self.ne, self.nb).unwrap_or_default();
        let w = self.map(gpu, self.w, self.ne.map(wide), w_strides, [DEPTH, ROWS, 1, 1])?;
        let x_dims = [k, parts, n, batches].map(wide);
        let x_strides = [row, row * wide(parts), row * wide(parts * n)];
        let x = self.map(gpu, self.x, x_dims, x_strides, [DEPTH, 1, self.by.columns, 1])?;
        let grid = [self.ne[1].div_ceil(ROWS), n.div_ceil(self.by.columns), batches];
        let args = Args::default().map(&w).map(&x).then(product).address(units);
        Launch::new(gpu, modules, &self.kernel(), grid, args)
    }

    /// Tiles of so many numbers of a tensor, zeros where it has none, in rows of 128 bytes that are swizzled.
    fn map(&self, gpu: &Gpu, at: u64, ne: [u64; 4], nb: [u64; 3], tile: [usize; 4]) -> Result<CUtensorMap> {
        let dtype = match self.by.dtype {
            DType::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            _ => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let (mut map, tile, steps) = (CUtensorMap([0; 16]), tile.map(|n| n as u32), [1; 4]);
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
