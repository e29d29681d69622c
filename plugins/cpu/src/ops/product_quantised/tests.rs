//! Products by tiles have the bits of plain Rust; tiles are those of the twin, which follows the list of instructions.

use super::*;
use crate::ops::Column;
use crate::ops::output::Output;
use crate::ops::worker::{Rank, Taken};
use crate::quant::activations::quantise;
use crate::simd::Scalar;
use crate::simd::tiles_twin::Twin;
use crate::tensor::Tensor;
use llmrt_plugin::DType;

/// A way to multiply.
type Multiply = fn(&Product<'_>, &mut Tile<'_>, &mut Scratch);

/// One stretch of groups and a part of the next one, with two panels.
const K: usize = 768;
/// Two panels, and a part of a third.
const ROWS: usize = 37;

/// Numbers without a pattern, of any size up to some.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next() * (8.0 * next()).exp2()).collect()
}

/// Rows of weights in a format times columns, and the bits that ways to multiply make of them.
struct Case {
    dtype: DType,
    weights: Vec<u8>,
    x: Vec<XGroup>,
    n_rows: usize,
}

impl Case {
    fn new<F: Format>(n_rows: usize, n_columns: usize) -> Case {
        let dtype = F::DTYPE;
        let w = numbers(K * n_rows, 1);
        let weights = w.chunks(K).flat_map(|row| llmrt_graph::quant::quantise(dtype, row)).collect();
        let mut x = vec![XGroup::default(); K / 32 * n_columns];
        quantise::<F>(Isa::SCALAR, &numbers(K * n_columns, 2), &mut x);
        Case { dtype, weights, x, n_rows }
    }

    fn bits(&mut self, columns: &[Column], multiply: Multiply) -> Vec<u32> {
        let ne = [self.n_rows, columns.len(), 1, 1];
        let mut y = vec![f32::NAN; self.n_rows * columns.len()];
        // SAFETY: the bytes outlive the tensors, which this function drops; `f32` is aligned.
        let (w, result) = unsafe {
            let y = bytemuck::cast_slice_mut(&mut y);
            let w = Tensor::of_bytes(&mut self.weights, self.dtype, [K, self.n_rows, 1, 1]);
            (w, Tensor::of_bytes(y, DType::F32, ne))
        };
        let product = Product { w: &w, at: [0; 2], quantised: &self.x, packed: &[], columns };
        let taken = [Taken::default()];
        // SAFETY: the result is gapless F32; the team is this thread.
        let out = unsafe { Output::new(&result, Rank::new(0, 1), &taken, None) };
        let mut scratch = Scratch::default();
        out.tiles(ne).for_each(|mut tile| multiply(&product, &mut tile, &mut scratch));
        y.into_iter().map(f32::to_bits).collect()
    }

    /// Compares a way with plain Rust, for columns one after the other, and for others in any order.
    fn check<F: Format>(&mut self, n: usize, name: &str, multiply: Multiply) {
        let n_x = self.x.len() / (K / 32);
        let in_order = (0..n).map(|i| Column { x: n_x - n + i, y: i }).collect::<Vec<_>>();
        let scattered = (0..n).map(|i| Column { x: (i * 7 + 3) % n_x, y: n - 1 - i }).collect::<Vec<_>>();
        for columns in [in_order, scattered] {
            let expected = self.bits(&columns, |p, y, scratch| quantised_with::<_, F>(Scalar, p, y, scratch));
            let found = self.bits(&columns, multiply);
            assert!(found == expected, "{} by {name}, {n} columns from {}", self.dtype, columns[0].x);
        }
    }
}

fn by_twin<F: Format>(p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    with_tiles::<_, F, Twin>(Scalar, (), p, y, scratch);
}

#[test]
fn products_by_tiles_have_the_bits_of_plain_rust_in_every_format() {
    fn check<F: Format>() {
        let mut case = Case::new::<F>(ROWS, 41);
        for n in [16, 17, 23, 32, 40] {
            case.check::<F>(n, "the twin", by_twin::<F>);
        }
    }
    check::<crate::quant::Q4_0>();
    check::<crate::quant::Q4_1>();
    check::<crate::quant::Q5_0>();
    check::<crate::quant::Q5_1>();
    check::<crate::quant::Q8_0>();
    check::<crate::quant::Q2K>();
    check::<crate::quant::Q3K>();
    check::<crate::quant::Q4K>();
    check::<crate::quant::Q5K>();
    check::<crate::quant::Q6K>();
    check::<crate::quant::Iq4Nl>();
    check::<crate::quant::Iq4Xs>();
    check::<crate::quant::Mxfp4>();
}

#[test]
fn so_have_those_of_any_number_of_columns_and_rows() {
    fn check<F: Format>() {
        for n_rows in [1, 16, 32] {
            let mut case = Case::new::<F>(n_rows, 41);
            (1..=40).for_each(|n| case.check::<F>(n, "the twin", by_twin::<F>));
        }
    }
    check::<crate::quant::Q4_0>();
    check::<crate::quant::Q2K>();
    let more_than_are_at_work_at_a_time = super::COLUMNS + 5;
    let mut case = Case::new::<crate::quant::Q4K>(3, more_than_are_at_work_at_a_time);
    case.check::<crate::quant::Q4K>(
        more_than_are_at_work_at_a_time,
        "the twin",
        by_twin::<crate::quant::Q4K>,
    );
}

/// With the vectors that go with the machine's tiles.
#[cfg(target_arch = "x86_64")]
#[test]
fn so_have_those_that_avx512_vnni_adds_up() {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn with_features<F: Format>(p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
        // SAFETY: the features are those of this function, so the machine has them.
        let s = unsafe { crate::simd::Avx512Vnni::new() };
        with_tiles::<_, F, Twin>(s, (), p, y, scratch);
    }
    fn check<F: Format>() {
        let mut case = Case::new::<F>(ROWS, 41);
        for n in [16, 23, 40] {
            case.check::<F>(n, "AVX-512 VNNI and the twin", |p, y, scratch| {
                // SAFETY: the test ends before where the machine lacks the features.
                unsafe { with_features::<F>(p, y, scratch) }
            });
        }
    }
    if Isa::from_name("avx512vnni").is_err() {
        return;
    }
    check::<crate::quant::Q8_0>();
    check::<crate::quant::Q4K>();
    check::<crate::quant::Q6K>();
}
